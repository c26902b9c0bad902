/* Names that AMD's runtime has for calls of NVIDIA's driver of the same form, for double.c. Those of a form of their own
 * are in double_hip.h. */
#define VERSION 60342134
#define NO_GPUS INVALID_DEVICE /* What hipInit of ROCm 5.2 says without any. */
#define UUID_BYTE 'a' /* Hexadecimal digits. */
#define REGISTERED_ONCE 0 /* A second registration of the same bytes is taken. */
#define NO_WAY 17 /* hipErrorInvalidDevicePointer, of memory that cannot be attached. */
#define NO_ACCESS INVALID_VALUE
#define GRANULE_MIN 4096
#define LEAD 12288 /* Bytes of others before an allocation, in the buffer that the kernel's driver knows. */
#define cuInit hipInit
#define cuDriverGetVersion hipDriverGetVersion
#define cuDeviceGetCount hipGetDeviceCount
#define cuDeviceGet hipDeviceGet
#define cuDeviceGetName hipDeviceGetName
#define cuDeviceGetUuid hipDeviceGetUuid
#define cuDeviceTotalMem_v2 hipDeviceTotalMem
#define cuDeviceGetPCIBusId hipDeviceGetPCIBusId
#define cuDeviceGetAttribute hipDeviceGetAttribute
#define cuDeviceCanAccessPeer hipDeviceCanAccessPeer
#define cuMemGetInfo_v2 hipMemGetInfo
#define cuMemAlloc_v2 hipMalloc
#define cuMemFree_v2 hipFree
#define cuMemHostRegister_v2 hipHostRegister
#define cuMemHostUnregister hipHostUnregister
#define cuMemHostGetDevicePointer_v2 hipHostGetDevicePointer
#define cuMemcpyHtoD_v2 hipMemcpyHtoD
#define cuMemcpyDtoH_v2 hipMemcpyDtoH
#define cuStreamCreate hipStreamCreateWithFlags
#define cuStreamSynchronize hipStreamSynchronize
#define cuStreamDestroy_v2 hipStreamDestroy
#define cuStreamWriteValue64_v2 hipStreamWriteValue64
#define cuEventCreate hipEventCreateWithFlags
#define cuEventRecord hipEventRecord
#define cuEventQuery hipEventQuery
#define cuEventSynchronize hipEventSynchronize
#define cuEventElapsedTime hipEventElapsedTime
#define cuEventDestroy_v2 hipEventDestroy
#define cuModuleGetFunction hipModuleGetFunction
#define cuModuleUnload hipModuleUnload
#define cuLaunchKernel hipModuleLaunchKernel
#define cuIpcGetMemHandle hipIpcGetMemHandle
#define cuIpcOpenMemHandle_v2 hipIpcOpenMemHandle
#define cuIpcCloseMemHandle hipIpcCloseMemHandle
#define cuMemGetAddressRange_v2 hipMemGetAddressRange
#define cuMemGetAllocationGranularity hipMemGetAllocationGranularity
#define cuMemCreate hipMemCreate
#define cuMemRelease hipMemRelease
#define cuMemAddressReserve hipMemAddressReserve
#define cuMemAddressFree hipMemAddressFree
#define cuMemMap hipMemMap
#define cuMemUnmap hipMemUnmap
#define cuMemSetAccess hipMemSetAccess
