mkdir -p t/a
touch t/a/x.c t/y.c t/z.h
$POISE find --threads=2 t -name '*.c' | sort
$POISE find t -maxdepth 1 -type f -printf '%f %d\n' | sort
$POISE find -P t -name '*.h'
cd t && $POISE find -name '*.h'
