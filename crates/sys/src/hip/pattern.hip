// The keyed pattern of tonnage_engine::pattern, written and compared by a GPU: what pattern.ptx is to GPUs of NVIDIA,
// with the same arguments. cuda/pattern.rs starts these kernels; tonnage_engines::memory proves them on each GPU before
// it trusts them.
//
// Both kernels get a stretch of memory by its first byte (address) and its length (bytes), and what belongs there:
// place, the position of the first byte in the flow's data, and base and inverted, the numbers of the key. All of these
// are 64-bit numbers that wrap.
//
// Each thread takes every n-th of the 8-byte words, aligned as the GPU sees them, that the stretch touches. A word that
// lies in the stretch with all its bytes is written or read whole; the first and the last may not, and their bytes go
// one by one, so that no byte outside is read or written.
typedef unsigned long long u64;
typedef unsigned char u8;

// The word of the pattern that a place lies in.
static __device__ u64 word_at(u64 place, u64 base, u64 inverted)
{
    u64 x = place / 8 * 0x9e3779b97f4a7c15ull ^ base;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31 ^ inverted;
}

// The eight bytes that begin at a place: those of one word, or the last of one and the first of the next.
static __device__ u64 bytes_at(u64 place, u64 base, u64 inverted)
{
    const u64 shift = 8 * (place % 8);
    const u64 word = word_at(place, base, inverted);
    return shift == 0 ? word : word >> shift | word_at(place + 8, base, inverted) << (64 - shift);
}

// This thread's first word, counted in bytes from the first of all, and the distance to its next.
static __device__ u64 first_word(void)
{
    return 8 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
}

static __device__ u64 word_step(void)
{
    return 8 * ((u64)gridDim.x * blockDim.x);
}

#ifdef __cplusplus
extern "C" {
#endif

// Writes the pattern.
__global__ void tonnage_fill(u64 address, u64 bytes, u64 place, u64 base, u64 inverted)
{
    const u64 end = address + bytes;
    const u64 start = address - address % 8;
    u64 word;

    for (word = start + first_word(); word < end; word += word_step()) {
        const u64 value = bytes_at(place + (word - address), base, inverted);
        u64 at = word < address ? address : word;
        const u64 behind = word + 8 < end ? word + 8 : end;
        if (behind - at == 8) {
            *(u64 *)word = value;
        } else {
            for (; at < behind; at++) {
                *(u8 *)at = (u8)(value >> 8 * (at - word));
            }
        }
    }
}

// Compares with the pattern. The two numbers at found become the offsets from address of the first and of the last byte
// that differ; they are all ones and zero before, and stay so where none does.
__global__ void tonnage_verify(u64 address, u64 bytes, u64 place, u64 base, u64 inverted, u64 found)
{
    const u64 end = address + bytes;
    const u64 start = address - address % 8;
    u64 word;

    for (word = start + first_word(); word < end; word += word_step()) {
        const u64 value = bytes_at(place + (word - address), base, inverted);
        u64 at = word < address ? address : word;
        const u64 behind = word + 8 < end ? word + 8 : end;
        if (behind - at == 8 && *(const u64 *)word == value) {
            continue;
        }
        for (; at < behind; at++) {
            if (*(const u8 *)at != (u8)(value >> 8 * (at - word))) {
                atomicMin((u64 *)found, at - address);
                atomicMax((u64 *)found + 1, at - address);
            }
        }
    }
}

#ifdef __cplusplus
}
#endif
