/* Bantam's memory pool as C functions: for PyTorch (CUDAPluggableAllocator), CuPy, and whatever else asks for memory by
 * function pointers. C99 and C++.
 *
 *     bantam_pool* pool;
 *     int status = bantam_pool_open("cuda:0", (uint64_t)4 << 30, "torch", &pool);
 *     if (status == BANTAM_POOL_OK) status = bantam_pool_serve(pool);  // PyTorch's functions use it from now on
 *     if (status != BANTAM_POOL_OK) puts(bantam_pool_last_error());
 *
 * Functions that return an int return BANTAM_POOL_OK or another bantam_pool_status; the message of a thread's last
 * failure is bantam_pool_last_error(). All are safe from any thread, except that a pool must not be closed while
 * another thread uses it. None throws but bantam_torch_alloc. Sizes are bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BANTAM_POOL_FUNCTION __attribute__((visibility("default")))
#else
#define BANTAM_POOL_FUNCTION
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bantam_pool bantam_pool;

typedef enum {
  BANTAM_POOL_OK = 0,
  BANTAM_POOL_ERROR = 1,         /* bad arguments, a device that is not there, a failed call of the driver */
  BANTAM_POOL_OUT_OF_MEMORY = 2, /* the limit or the device has no room; the message has the numbers */
  BANTAM_POOL_IN_USE = 3         /* memory of the pool is still in use */
} bantam_pool_status;

/* The message of the calling thread's last failure; "" where there was none. Valid until its next call here. */
BANTAM_POOL_FUNCTION const char* bantam_pool_last_error(void);

/* A pool of its own on `device` ("cpu", "cuda:0"), whose memory is reported under `name`. `limit_bytes` (0: none)
 * bounds, on a GPU, all of this process there: context, libraries, kernels and pool; on the CPU the pool. */
BANTAM_POOL_FUNCTION int bantam_pool_open(const char* device, uint64_t limit_bytes, const char* name,
                                          bantam_pool** pool);
/* Releases all. BANTAM_POOL_IN_USE, with nothing changed, while memory of it is in use. Null is allowed. */
BANTAM_POOL_FUNCTION int bantam_pool_close(bantam_pool* pool);

/* Memory for work on `stream` (a cudaStream_t; null: the legacy default stream; ignored on the CPU). Null for 0 bytes
 * and where there is none: the limit is not passed. Aligned to 256. */
BANTAM_POOL_FUNCTION void* bantam_pool_allocate(bantam_pool* pool, size_t bytes, void* stream);
/* Frees it, in order of the stream that it was allocated for and of those noted by bantam_pool_use: it is reused once
 * their work so far is done, and the host waits for nothing. Null is allowed. */
BANTAM_POOL_FUNCTION int bantam_pool_free(bantam_pool* pool, void* address);
/* Work on `stream`, another than it was allocated for, uses the memory, too. The stream must live until it is freed. */
BANTAM_POOL_FUNCTION int bantam_pool_use(bantam_pool* pool, void* address, void* stream);

/* Changes the limit at any time. BANTAM_POOL_OUT_OF_MEMORY, with nothing changed, where memory in use does not allow
 * it. */
BANTAM_POOL_FUNCTION int bantam_pool_set_limit(bantam_pool* pool, uint64_t limit_bytes);
/* Counts `bytes` of memory that is not the pool's under `name`, in reports and against the limit; 0 ends it. */
BANTAM_POOL_FUNCTION int bantam_pool_reserve_for(bantam_pool* pool, const char* name, uint64_t bytes);
/* Idle memory returns to the device; the bytes. */
BANTAM_POOL_FUNCTION uint64_t bantam_pool_trim(bantam_pool* pool);
/* The memory report as text for people, or with `json` as one JSON object (docs/INTEROP.md); null after a failure. The
 * caller frees it with bantam_pool_free_text. */
BANTAM_POOL_FUNCTION char* bantam_pool_report(bantam_pool* pool, int json);
BANTAM_POOL_FUNCTION void bantam_pool_free_text(char* text);

/* The two functions below use this pool for its device from now on, until it is closed. A process has one such pool a
 * device, because their signatures have no place for a pool. BANTAM_POOL_IN_USE where another pool serves the device,
 * and memory of that is in use. */
BANTAM_POOL_FUNCTION int bantam_pool_serve(bantam_pool* pool);

/* PyTorch's: torch.cuda.memory.CUDAPluggableAllocator(path, "bantam_torch_alloc", "bantam_torch_free"). `device` is
 * CUDA's number (-1: the CPU), `stream` a cudaStream_t. Where there is no memory, bantam_torch_alloc throws a C++
 * exception derived from std::exception, which PyTorch turns into a RuntimeError with its message: a null pointer it
 * would use. */
BANTAM_POOL_FUNCTION void* bantam_torch_alloc(size_t bytes, int device, void* stream);
BANTAM_POOL_FUNCTION void bantam_torch_free(void* address, size_t bytes, int device, void* stream);
/* Tensor.record_stream: allocator.allocator().set_record_stream_fn(address of this function). */
BANTAM_POOL_FUNCTION void bantam_torch_record_stream(void* address, void* stream);

#ifdef __cplusplus
}
#endif
