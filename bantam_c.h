/* The C interface of Bantam: train, plan, predict, save and report memory from C, and from whatever calls C. Installed
 * as bantam/bantam_c.h; docs/C-API.md shows its use.
 *
 * Every function that can fail returns a status; bantam_last_error() has the message, for the calling thread. No
 * exception comes out, nothing is printed, and the process is never ended. Handles belong to the caller, who destroys
 * them, in any order: what a handle needs of another, it keeps. One that was destroyed is refused (BANTAM_BAD_ARGUMENT,
 * and destroying it again changes nothing), as long as no later handle has its address. Text that a function returns
 * through `char**` is freed by bantam_free. Pointers in arguments need not outlive the call unless a comment says so.
 *
 * Structs grow at their end in later versions. Their first member is their size as the caller's compiler knows it,
 * which BANTAM_INIT sets; members that a caller does not know are zero, and zero is the default of each. bantam_array
 * is the exception: it stays as it is.
 *
 * Threads: an engine, and functions without a handle, may be used by any number of threads at once; every other handle
 * by one thread at a time. Two handles never share what changes but through their engine. */
#ifndef BANTAM_C_H
#define BANTAM_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BANTAM_C_API __attribute__((visibility("default")))
#else
#define BANTAM_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. It rises when something is added; nothing is removed within one major version. */
#define BANTAM_C_VERSION 1

/* A struct with its size set and all else zero:  bantam_train_options options = BANTAM_INIT(bantam_train_options); */
#ifdef __cplusplus
#define BANTAM_INIT(type) \
  type { sizeof(type) }
#else
#define BANTAM_INIT(type) \
  { .struct_size = sizeof(type) }
#endif

typedef int32_t bantam_status;
enum {
  BANTAM_OK = 0,
  BANTAM_ERROR = 1,         /* none of the others */
  BANTAM_BAD_ARGUMENT = 2,  /* of this interface: a null pointer, a size that does not agree */
  BANTAM_CONFIG_ERROR = 3,  /* a configuration that cannot be used: the message has file, line and column */
  BANTAM_DATA_ERROR = 4,    /* samples, weights or a checkpoint that are missing, damaged or do not fit */
  BANTAM_SHAPE_ERROR = 5,   /* shapes that do not fit */
  BANTAM_DTYPE_ERROR = 6,   /* an element type that is not supported there */
  BANTAM_DEVICE_ERROR = 7,  /* a device that does not exist or cannot be used */
  BANTAM_CUDA_ERROR = 8,    /* a call of CUDA's libraries that failed: the device is of no further use */
  BANTAM_OUT_OF_MEMORY = 9, /* does not fit the limit or the device; handles stay usable */
  BANTAM_NOT_FINITE = 10,   /* loss or weights are no longer finite */
  BANTAM_STOPPED = 11       /* a callback asked to stop before the training began */
};

enum {
  BANTAM_FLOAT32 = 0,
  BANTAM_FLOAT16 = 1,
  BANTAM_BFLOAT16 = 2,
  BANTAM_FLOAT64 = 3,
  BANTAM_UINT8 = 4,
  BANTAM_INT32 = 5,
  BANTAM_INT64 = 6
};

/* "0.1.0", and the BANTAM_C_VERSION that the library was built with. */
BANTAM_C_API const char* bantam_version(void);
BANTAM_C_API int32_t bantam_c_version(void);

/* What the last call of this thread that failed said: one complete message. Empty where none failed. Valid until the
 * next call that fails. A callback of the program's own may say why it fails with bantam_set_error, before it returns.
 */
BANTAM_C_API const char* bantam_last_error(void);
BANTAM_C_API void bantam_set_error(const char* message);
/* The name of a status: "BANTAM_OUT_OF_MEMORY". */
BANTAM_C_API const char* bantam_status_name(bantam_status status);

/* Frees text that a function of this interface returned; null is allowed. */
BANTAM_C_API void bantam_free(char* text);

/* The CPU and every GPU, as JSON: {"devices": [{"device": "cpu", "name": …, "total_bytes": …, "free_bytes": …}, …],
 * "built_with_cuda": …, "cuda_unavailable_reason": …}, the reason "" where there is a GPU. */
BANTAM_C_API bantam_status bantam_devices(char** json);
/* The JSON Schema of configurations. */
BANTAM_C_API bantam_status bantam_config_schema(char** json);

/* ---- Arrays, and samples
 * ---------------------------------------------------------------------------------------------- */

/* Values in host memory, in row-major order without gaps; the first axis is that of samples. */
typedef struct bantam_array {
  const char* name; /* "images", "labels", "targets", …; may be null where only one array is asked for */
  int32_t dtype;    /* BANTAM_FLOAT32, … */
  int32_t rank;
  const int64_t* shape; /* rank extents */
  const void* data;
} bantam_array;

/* Samples of the program's own: arrays that lie in memory, or a function that makes one sample after another. */
typedef struct bantam_samples {
  size_t struct_size;
  /* One array is named "images": (samples, height, width, channels) or (samples, features), uint8 or float32. The
   * others are what the loss reads: "labels", int32, (samples) or (samples, height, width); "targets", float32,
   * (samples, …). */
  const bantam_array* arrays;
  size_t array_count;
  /* Names of the labels 0, 1, …; without any, numbers up to the greatest label of the arrays. */
  const char* const* class_names;
  size_t class_count;
  /* Where set, the arrays have shapes and no data, and this writes sample `index` into one buffer an array. Called by
   * several threads at once, and more than once for a sample: it must write the same bytes each time. Not 0: the sample
   * cannot be read, and bantam_set_error may say why. */
  int32_t (*read)(void* user, int64_t index, void* const* buffers);
  void* user;
  /* Called once, when the last handle that reads the samples is gone, also where creating it has failed; may be null.
   * The arrays' data, or what `read` needs, must be there until then. */
  void (*release)(void* user);
} bantam_samples;

/* ---- Configurations and plans
 * ----------------------------------------------------------------------------------------- */

typedef struct bantam_config bantam_config;

typedef struct bantam_config_options {
  size_t struct_size;
  const char* name; /* of a text, in messages and in the run's name; null: "config.yaml" */
  /* As on the command line, "train.epochs=3"; later ones win. */
  const char* const* overrides;
  size_t override_count;
  /* The program's samples, in the place of the section `data`; null: those that the configuration names. Without
   * `validation`, whose images have the type of `train`'s, `data.validation: {split: …}` holds samples out, or nothing
   * is evaluated. Without `data.pipeline` samples are shuffled, uint8 images scaled to [0, 1], batches made ahead. */
  const bantam_samples* train;
  const bantam_samples* validation;
  int64_t batch_size; /* with `train`: in the place of the configuration's; 0: that, or 32 where it has no pipeline */
} bantam_config_options;

/* Reads and checks a configuration. `options` may be null. */
BANTAM_C_API bantam_status bantam_config_from_text(const char* yaml, const bantam_config_options* options,
                                                   bantam_config** config);
BANTAM_C_API bantam_status bantam_config_from_file(const char* path, const bantam_config_options* options,
                                                   bantam_config** config);
BANTAM_C_API void bantam_config_destroy(bantam_config* config);
/* Every key with the value that counts, defaults included. */
BANTAM_C_API bantam_status bantam_config_resolved(const bantam_config* config, char** yaml);

typedef struct bantam_memory_plan {
  size_t struct_size;
  int64_t batch_size;
  uint64_t peak_bytes; /* most bytes in use at one time */
  uint64_t pool_bytes; /* reserved from the device */
  /* At the peak; they add up to peak_bytes. */
  uint64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, workspace_bytes, input_bytes,
      other_bytes;
  int32_t fits;       /* into `memory`, or what the configuration and the card allow; 0: no */
  char recompute[64]; /* the policy that was chosen: "none", "cheap", … (cut where it names many layers) */
} bantam_memory_plan;

/* The memory of training, to the byte: nothing is allocated on the device, and no data are read. `memory`: bytes to fit
 * into; 0: what the configuration or the card says. */
BANTAM_C_API bantam_status bantam_plan(const bantam_config* config, uint64_t memory, bantam_memory_plan* plan);

/* ---- Engines: devices, limits, the log
 * ---------------------------------------------------------------------------------- */

typedef struct bantam_engine bantam_engine;

typedef struct bantam_engine_options {
  size_t struct_size;
  int32_t threads; /* of the CPU; 0: all processors. Results do not depend on it */
  /* Most bytes on devices: limits[i] of "cpu", "cuda:0", … */
  const char* const* limit_devices;
  const uint64_t* limits;
  size_t limit_count;
  /* Gets messages, a line each; null: they are dropped. Must not call the engine. It and `user` outlive all models,
     tensors and DLPack structs of the engine. */
  void (*log)(void* user, const char* message);
  void* user;
} bantam_engine_options;

/* Engines do not see each other. `options` may be null. Models keep their engine alive. */
BANTAM_C_API bantam_status bantam_engine_create(const bantam_engine_options* options, bantam_engine** engine);
BANTAM_C_API void bantam_engine_destroy(bantam_engine* engine);
/* Raises or lowers a limit, at any time; 0: none. BANTAM_OUT_OF_MEMORY, changing nothing, where live memory does not
 * allow it. */
BANTAM_C_API bantam_status bantam_engine_set_limit(bantam_engine* engine, const char* device, uint64_t bytes);
/* Releases idle memory to the device; `released` may be null. */
BANTAM_C_API bantam_status bantam_engine_trim(bantam_engine* engine, const char* device, uint64_t* released);
/* Who holds the device's memory, as JSON: every size exact, adding up to the byte. */
BANTAM_C_API bantam_status bantam_engine_memory_report(bantam_engine* engine, const char* device, char** json);

/* ---- Whole runs
 * ----------------------------------------------------------------------------------------------------------- */

enum {
  BANTAM_EVENT_BEGIN = 0,     /* all is ready; `epochs` is known */
  BANTAM_EVENT_PROGRESS = 1,  /* some updates are done: loss and accuracy are those of the epoch so far */
  BANTAM_EVENT_EVALUATED = 2, /* an evaluation is complete: loss and accuracy of the validation samples */
  BANTAM_EVENT_EPOCH_END = 3, /* loss and accuracy of the epoch's training samples */
  BANTAM_EVENT_TEST = 4,      /* those of the test samples, at the run's end */
  BANTAM_EVENT_WARNING = 5    /* `message` */
};

/* What a run tells while it trains. Valid during the call. `accuracy` here and below is what metrics.jsonl calls
 * `accuracy`, or `binary_accuracy` (the share of right binary decisions, of sigmoids with any number of classes a
 * sample); it means nothing where metrics.jsonl has neither. */
typedef struct bantam_event {
  size_t struct_size;
  int32_t kind;            /* BANTAM_EVENT_… */
  int64_t epoch, epochs;   /* epoch counts from 0 */
  int64_t update, updates; /* done in this epoch, and in all of it */
  double loss, accuracy;
  double learning_rate; /* of the last update; of progress */
  double images_per_second, eta_seconds;
  const char* metrics;   /* JSON of the configuration's other metrics: {"top_k": 0.98}; "{}" where there are none */
  const char* message;   /* of a warning; else null */
  bantam_engine* engine; /* of the run, from its beginning on: for memory reports and limits during the call; not to be
                            destroyed. Null in warnings before it is there */
} bantam_event;

/* Not 0: the run stops after the update under way, and is saved. Warnings' answers do not count, and they may come from
 * any thread. */
typedef int32_t (*bantam_on_event)(void* user, const bantam_event* event);

typedef struct bantam_train_options {
  size_t struct_size;
  const char* folder; /* of the run; null: runs/<name>-<date-time> */
  int32_t overwrite;  /* not 0: replaces a run that is in the folder */
  int32_t resume;     /* not 0: goes on with the run in the folder; where there is none, a new one begins */
  int32_t threads;    /* of the CPU; 0: all processors */
  bantam_on_event on_event;
  void* user;
} bantam_train_options;

typedef struct bantam_train_result {
  size_t struct_size;
  int64_t epochs, updates;    /* finished; done */
  double seconds;             /* of training */
  double loss, accuracy;      /* of the last epoch's training samples */
  int64_t validation_samples; /* 0: nothing was evaluated */
  double validation_loss, validation_accuracy;
  int64_t test_samples;
  double test_loss, test_accuracy;
  double images_per_second;
  int32_t stopped;         /* by on_event */
  int32_t stopped_early;   /* by train.stop_early */
  int32_t finished_before; /* a resumed run that had all of its epochs: nothing was trained */
  int64_t parameters;
  uint64_t planned_peak_bytes, planned_pool_bytes; /* of the device's pool, known before the run began */
  uint64_t peak_bytes, pool_bytes;                 /* measured */
} bantam_train_result;

/* Trains the configuration's model on its data, as `bantam train` does: plans and reserves the memory, trains,
 * evaluates, and saves into the run's folder. Blocks until the end. A run that stops or fails is saved, and can be
 * resumed with the same samples. `options` and `result` may be null. `run_folder`, where not null, gets the folder's
 * path (bantam_free). */
BANTAM_C_API bantam_status bantam_train(const bantam_config* config, const bantam_train_options* options,
                                        bantam_train_result* result, char** run_folder);

/* ---- Models: steps of one's own, predictions, weights
 * ------------------------------------------------------------------------ */

typedef struct bantam_model bantam_model;

/* A network with its optimizer and loss, with initial weights (by the seed, or from the file that the configuration
 * names). `engine` null: one with the configuration's limits. */
BANTAM_C_API bantam_status bantam_model_create(bantam_engine* engine, const bantam_config* config,
                                               bantam_model** model);

typedef struct bantam_open_options {
  size_t struct_size;
  const char* checkpoint; /* of a run's folder: "last", "best" or a number of updates; null: the run's weights */
  const char* config;     /* path of the configuration, of a weights file that lies in no run's folder */
  int32_t threads;        /* without an engine; 0: all processors */
  int64_t batch_size;     /* most samples of one pass; 0: 32 */
} bantam_open_options;

/* A trained network for predictions, from a run's folder, a checkpoint or a weights file. It has no optimizer: steps
 * are refused. `engine` and `options` may be null. */
BANTAM_C_API bantam_status bantam_model_open(bantam_engine* engine, const char* path,
                                             const bantam_open_options* options, bantam_model** model);
BANTAM_C_API void bantam_model_destroy(bantam_model* model);

#define BANTAM_MAX_RANK 8
typedef struct bantam_model_info {
  size_t struct_size;
  int32_t input_rank; /* of one sample */
  int64_t input_shape[BANTAM_MAX_RANK];
  int32_t output_rank;
  int64_t output_shape[BANTAM_MAX_RANK];
  int64_t parameters; /* without running statistics */
  int32_t trains;     /* not 0: bantam_model_create made it */
  char device[32];
  int64_t repeated_batches; /* for how many bantam_batches.next may be asked once more: an update's; 0: for none */
} bantam_model_info;

BANTAM_C_API bantam_status bantam_model_get_info(const bantam_model* model, bantam_model_info* info);
/* Class names as a JSON list; [] where they are not known. */
BANTAM_C_API bantam_status bantam_model_class_names(const bantam_model* model, char** json);

/* What updates or evaluations came to. */
typedef struct bantam_metrics {
  size_t struct_size;
  double loss, accuracy; /* means over the samples */
  int64_t samples;
  int64_t updates;
  char values[256]; /* JSON of the configuration's other metrics; "{}" where there are none or they are longer */
} bantam_metrics;

/* Forward, backward and update on one batch: "images", float32, (batch, the network's input), and what the loss reads.
 * Copies the batch; the work may go on when the function returns, unless `metrics` is not null: then they are this
 * update's. */
BANTAM_C_API bantam_status bantam_model_step(bantam_model* model, const bantam_array* batch, size_t count,
                                             bantam_metrics* metrics);
/* The same in parts, for batches that do not fit: each call adds the gradients of `batch`, which are samples
 * first_sample … of an effective batch of `effective_batch` samples; bantam_model_update ends it. */
BANTAM_C_API bantam_status bantam_model_accumulate(bantam_model* model, const bantam_array* batch, size_t count,
                                                   int64_t first_sample, int64_t effective_batch);
BANTAM_C_API bantam_status bantam_model_update(bantam_model* model);
/* Metrics of all updates since they were last read; waits for the device. */
BANTAM_C_API bantam_status bantam_model_read_metrics(bantam_model* model, bantam_metrics* metrics);
/* Loss and metrics of a batch without training. */
BANTAM_C_API bantam_status bantam_model_evaluate(bantam_model* model, const bantam_array* batch, size_t count,
                                                 bantam_metrics* metrics);
/* Applies from the next update. */
BANTAM_C_API bantam_status bantam_model_set_learning_rate(bantam_model* model, double learning_rate);

/* Batches of the program's own, for bantam_model_train. */
typedef struct bantam_batches {
  size_t struct_size;
  int64_t batches;         /* of an epoch */
  int64_t batch_size;      /* samples of each, but the last */
  int64_t last_batch_size; /* 0: batch_size */
  /* The next batch of `epoch`: sets arrays[0 … *count), of which there is room for 8, whose memory stays as it is until
   * the next call. Called in order, by the thread that trains; batch 0 comes again at each epoch's beginning. Not 0:
   * training ends with an error, which bantam_set_error may describe.
   * The order has two exceptions, each from an update's first batch on. An update for which memory ends is repeated
   * (memory.on_oom): its batches, bantam_model_info's repeated_batches at most, are asked for once more. The batches of
   * an update that was not finite are asked for to see where, after later ones as well; a program that cannot go back
   * returns not 0, and the search is left out. */
  int32_t (*next)(void* user, int64_t epoch, int64_t batch, bantam_array* arrays, size_t* count);
  void* user;
} bantam_batches;

/* Trains for the configuration's epochs, with its schedules and train.stop_early, on batches from the program; nothing
 * is saved on the way. `validation`, `on_event` and `result` may be null. */
BANTAM_C_API bantam_status bantam_model_train(bantam_model* model, const bantam_batches* train,
                                              const bantam_batches* validation, bantam_on_event on_event, void* user,
                                              bantam_train_result* result);

enum {
  BANTAM_INPUT_NETWORK = 0, /* float32, as the network reads it */
  BANTAM_INPUT_DATA = 1, /* as the training samples are stored: they pass the pipeline's stages of evaluation first */
  BANTAM_INPUT_AUTO = 2  /* as data where the configuration has the section `data`, else as the network reads it */
};

/* The network's outputs for samples (samples, …), into `outputs`: samples × the output's elements. Predictions of a
 * sample do not depend on the others. */
BANTAM_C_API bantam_status bantam_model_predict(bantam_model* model, const bantam_array* samples, int32_t input,
                                                float* outputs, size_t output_count);

/* Weights as safetensors, by their names in the network. Loading changes nothing where a tensor is missing or does not
 * fit, and is refused for models that were opened. */
BANTAM_C_API bantam_status bantam_model_save(bantam_model* model, const char* path);
BANTAM_C_API bantam_status bantam_model_load(bantam_model* model, const char* path);
/* Weights, the optimizer's moments and counters: training goes on with the same bits after loading. */
BANTAM_C_API bantam_status bantam_model_save_state(bantam_model* model, const char* path);
BANTAM_C_API bantam_status bantam_model_load_state(bantam_model* model, const char* path);
/* The engine's report of the model's device. */
BANTAM_C_API bantam_status bantam_model_memory_report(bantam_model* model, char** json);

/* ---- Tensors on devices, and DLPack
 * ------------------------------------------------------------------------------------------ */

/* Values on a device. Copies of weights are none: bantam_model_parameter shows the weights themselves. */
typedef struct bantam_tensor bantam_tensor;

/* A copy of an array of the host, by an engine's memory on a device ("cpu", "cuda:0"). The array may have any axes. */
BANTAM_C_API bantam_status bantam_tensor_create(bantam_engine* engine, const char* device, const bantam_array* values,
                                                bantam_tensor** tensor);
BANTAM_C_API void bantam_tensor_destroy(bantam_tensor* tensor);

typedef struct bantam_tensor_info {
  size_t struct_size;
  int32_t dtype; /* BANTAM_FLOAT32, … */
  int32_t rank;
  int64_t shape[BANTAM_MAX_RANK];
  void* data; /* an address of the device */
  uint64_t bytes;
  int32_t dlpack_device_type, dlpack_device_id; /* as DLPack numbers devices: 1, 0 is the CPU; 2, N is cuda:N */
  char device[32];
} bantam_tensor_info;

BANTAM_C_API bantam_status bantam_tensor_get_info(const bantam_tensor* tensor, bantam_tensor_info* info);
/* Copies the values to host memory of `bytes` bytes, which must be the tensor's; waits for the device. */
BANTAM_C_API bantam_status bantam_tensor_read(const bantam_tensor* tensor, void* to, size_t bytes);

/* The tensor for another library, without a copy: a DLManagedTensorVersioned where `versioned` is not 0, else a
 * DLManagedTensor, whose deleter the other library calls once. Handles may be destroyed before. `stream`: as the
 * consumer passed to Python's __dlpack__; null: nothing. */
BANTAM_C_API bantam_status bantam_tensor_to_dlpack(const bantam_tensor* tensor, const int64_t* stream,
                                                   int32_t versioned, void** managed);
/* Another library's tensor, without a copy, for work of this engine. It owns `managed` from then on; where this fails,
 * `managed` is still the caller's. The producer must have been told bantam_engine_dlpack_stream. */
BANTAM_C_API bantam_status bantam_tensor_from_dlpack(bantam_engine* engine, const char* device, void* managed,
                                                     int32_t versioned, bantam_tensor** tensor);
/* What to pass as `stream` to another library's __dlpack__ on CUDA; 0 on the CPU: pass nothing. */
BANTAM_C_API bantam_status bantam_engine_dlpack_stream(bantam_engine* engine, const char* device, int64_t* stream);

/* bantam_model_step with tensors on the model's device: nothing is copied to the host, and labels are not looked at:
 * one that is no class makes the loss NaN. The tensors must not change before the work is done. */
BANTAM_C_API bantam_status bantam_model_step_tensors(bantam_model* model, const char* const* names,
                                                     const bantam_tensor* const* tensors, size_t count,
                                                     bantam_metrics* metrics);
/* The network's outputs for inputs as it reads them, on the device, of a model that trains: by its weights of now. */
BANTAM_C_API bantam_status bantam_model_forward(bantam_model* model, const bantam_tensor* input,
                                                bantam_tensor** output);
/* Names of the parameters, as a JSON list; and one of them: the float32 weights themselves, which training changes. */
BANTAM_C_API bantam_status bantam_model_parameter_names(bantam_model* model, char** json);
BANTAM_C_API bantam_status bantam_model_parameter(bantam_model* model, const char* name, bantam_tensor** tensor);

#ifdef __cplusplus
}
#endif
#endif
