# A launcher whose MPI has no back end here: never a world of one.
mkdir t
POISE_MPI=other $POISE walk --names-only t
