# What would be done as often as there are processes is refused on all of them,
# and said once; what joins them is not refused here.
printf '0 0\n9 0\n' >plate.txt
printf '0 1\n' >g.txt
mkdir t
for rank in 0 1; do
    export OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2
    $POISE bfs convert --to mtx g.txt out.mtx
    echo "convert $?"
    $POISE send t there
    echo "send $?"
    $POISE wire analyse g.txt >/dev/null
    echo "wire $?"
    $POISE advise true
    echo "advise $?"
    # Each of them for itself.
    POISE_MPI=none $POISE solve --sweeps 1 plate.txt out.$rank
    echo "alone $?"
done
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
PMI_RANK=1 PMI_SIZE=3 $POISE advise true
echo "hydra $?"
PMI_RANK=0 PMI_SIZE=1 $POISE solve --sweeps 1 plate.txt out.1
echo "one $?"
SLURM_PROCID=0 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=2 $POISE solve plate.txt out.txt
echo "srun $?"
ls
