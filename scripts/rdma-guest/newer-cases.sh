#!/bin/sh
# What the kernel's module must do in the kernel of backports: the least of kernel-cases.sh.

. ./case.sh
PAIR="--ranks 2 --devices-of 0=rxeB --devices-of 1=rxeA"

uname -r
echo "tonnage: the cases begin" >/dev/kmsg
insmod ./tonnage_kread.ko
expect "a newer kernel: refusals, failed lanes, sessions side by side" 0 '^contract: kept' ./kread contract rxeA rxeB
# shellcheck disable=SC2086
expect "a newer kernel: reads and writes" 0 '^PASS  all' tonnage verify --engine verbs:kernel $PAIR --sizes 1,4097
expect "a newer kernel: a key that no target gave" 0 'REM_ACCESS_ERR \(10\)' env TONNAGE_TEST_KERNEL=rxeA,rxeB \
    ./kernel_keys --nocapture
expect "a newer kernel: random calls" 0 '^fuzz: seed' ./kread fuzz rxeA rxeB 3 1
expect "a newer kernel: nothing is left" 1 '^0$' sh -c "sleep 0.5; rdma resource show pd | grep -c tonnage_kread"
expect "a newer kernel: it is unloaded" 0 '^unloaded' sh -c "rmmod tonnage_kread && echo unloaded"
expect "a newer kernel: it has nothing to say" 0 '^quiet' sh -c ". ./case.sh; noisy || echo quiet"

exit $failed
