/*
 * What libfabric's configure would find out, written by hand for Linux on 64-bit x86 and Arm with gcc or clang.
 *
 * Only what differs from "not there" is named: tcp, rxm and shm are built, and nothing that would need a library or a
 * header beyond those of the C compiler. Without HAVE_LIBDL this copy loads no providers from FI_PROVIDER_PATH, which
 * would be of another release; a system's library is there for those.
 */
#define PACKAGE "libfabric"
#define PACKAGE_NAME PACKAGE
#define PACKAGE_TARNAME PACKAGE
/* TONNAGE_LIBFABRIC_VERSION comes from build.rs, which reads it from the source tree. */
#define VERSION TONNAGE_LIBFABRIC_VERSION
#define PACKAGE_VERSION VERSION
#define BUILD_ID "embedded in tonnage"

#define HAVE_TCP 1
#define HAVE_RXM 1
#define HAVE_SHM 1
/* Intel's data streaming accelerator needs libaccel-config. */
#define SHM_HAVE_DSA 0

#define STDC_HEADERS 1
#define SIZEOF_VOID_P 8
#define PT_LOCK_SPIN 1
#define HAVE_ATOMICS 1
#define HAVE_ATOMICS_LEAST_TYPES 1
#define HAVE_BUILTIN_ATOMICS 1
#define HAVE_BUILTIN_MM_ATOMICS 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_EPOLL 1
#define HAVE_ETHTOOL 1
#define HAVE_DECL_ETHTOOL_CMD_SPEED 1
#define HAVE_DECL_SPEED_UNKNOWN 1
#define HAVE_GETIFADDRS 1
#define HAVE_TYPEOF 1
#define HAVE___CLEAR_CACHE 1
#define HAVE___INT128 1
#if defined(__x86_64__)
#define HAVE_CPUID 1
#endif

/* Some uses ask for the value rather than whether it is there. */
#define ENABLE_DEBUG 0
/* Versions of symbols and their aliases are for shared libraries. */
#define HAVE_ALIAS_ATTRIBUTE 0
#define HAVE_SYMVER_SUPPORT 0
#define HAVE_MEMHOOKS_MONITOR 0
#define HAVE_UFFD_MONITOR 0
#define HAVE_RESTRICTED_DL 0
