// Copies by the processors of a GPU, beside those of its copy engines: what copy.ptx is to GPUs of NVIDIA, with the same
// arguments and the same order of work. cuda/copy_kernel.rs starts this kernel; tonnage_engines::memory proves it on
// each GPU before it is used.
//
// It gets where bytes go to (to), where they come from (from), and how many there are (bytes). Each thread takes every
// n-th of the 8-byte words, aligned as the GPU sees them, that the destination touches, four of them at a time where
// there are so many, so that four loads are under way. The first and the last word may belong to the destination in
// part, and such bytes go one by one, so that no byte outside is read or written. Where the two ends are not aligned
// alike, all bytes go one by one.
typedef unsigned long long u64;
typedef unsigned char u8;

#ifdef __cplusplus
extern "C" {
#endif

__global__ void tonnage_copy(u64 to, u64 from, u64 bytes)
{
    // From a byte of the destination to the byte that belongs there.
    const u64 distance = from - to;
    const u64 end = to + bytes;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const u64 step = 8 * threads;
    u64 at;

    // Without bytes, the word that the destination lies in would seem to belong to it.
    if (bytes == 0) {
        return;
    }
    if (distance % 8 != 0) {
        for (at = to + first; at < end; at += threads) {
            *(u8 *)at = *(const u8 *)(at + distance);
        }
        return;
    }
    at = to - to % 8 + 8 * first;
    while (at < end) {
        const u64 last = at + 3 * step;
        if (at >= to && last + 8 <= end) {
            const u64 a = *(const u64 *)(at + distance);
            const u64 b = *(const u64 *)(at + step + distance);
            const u64 c = *(const u64 *)(at + 2 * step + distance);
            const u64 d = *(const u64 *)(last + distance);
            *(u64 *)at = a;
            *(u64 *)(at + step) = b;
            *(u64 *)(at + 2 * step) = c;
            *(u64 *)last = d;
            at = last + step;
            continue;
        }
        // The bytes of the word that belong to the destination.
        u64 byte = at < to ? to : at;
        const u64 behind = at + 8 < end ? at + 8 : end;
        if (behind - byte == 8) {
            *(u64 *)at = *(const u64 *)(at + distance);
        } else {
            for (; byte < behind; byte++) {
                *(u8 *)byte = *(const u8 *)(byte + distance);
            }
        }
        at += step;
    }
}

#ifdef __cplusplus
}
#endif
