mkdir -p t/a t/b
head -c 100000 /dev/zero >t/a/f
head -c 3000000 /dev/zero >t/b/g
for options in -b -bs -bh "-b --si" "-b -k" "--apparent-size -m" "-ab" \
    "-bc" "-bS" "-b -d1" "-b -BK" "-b -BKB" "-b -B 1000" "--inodes" "-b -BMiB" \
    "--inodes -h" "-b -B1MB" "-bd0"; do
    cmp <($POISE du $options t | sort) <(du $options t | sort) &&
        echo "du $options: as GNU"
done
$POISE du -b0 t/a/f t/b/g | tr '\0' ';'
echo
