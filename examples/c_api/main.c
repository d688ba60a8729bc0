/* A program in C: plans, trains on its own arrays with progress, predicts, saves, and reports memory. docs/C-API.md
 * shows parts of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bantam/bantam_c.h"

enum { SAMPLES = 512, HELD_OUT = 128, SIZE = 12, CLASSES = 2 };

static const char* const kConfig =
    "model:\n"
    "  input: [12, 12, 1]\n"
    "  layers: [conv2d: {filters: 8, kernel: 3, stride: 2, activation: relu}, flatten, dense: {units: 2}]\n"
    "train: {epochs: 4, optimizer: {adam: {learning_rate: 0.005}}}\n"
    "device: cpu\n";

/* Stripes with noise, horizontal (0) or vertical (1). */
static void draw(unsigned char* images, int32_t* labels, int count, unsigned seed) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    labels[i] = (int32_t)(seed >> 31);
    const int phase = (int)(seed >> 29) & 1;
    for (int at = 0; at < SIZE * SIZE; ++at) {
      const int along = labels[i] == 0 ? at / SIZE : at % SIZE;
      seed = seed * 1664525u + 1013904223u;
      images[i * SIZE * SIZE + at] = (unsigned char)(((along + phase) / 2 % 2 ? 140 : 40) + (int)(seed >> 24) / 3);
    }
  }
}

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, bantam_last_error());
  return 1;
}

static int32_t on_event(void* user, const bantam_event* event) {
  if (event->kind == BANTAM_EVENT_EVALUATED) {
    printf("epoch %d: validation accuracy %.3f\n", (int)event->epoch + 1, event->accuracy);
    ++*(int*)user;
  }
  return 0; /* not 0 stops the run, which is then saved */
}

/* A configuration whose samples are these arrays. They have to be there until it is destroyed. */
static bantam_status make_config(unsigned char* images, int32_t* labels, bantam_config** config) {
  const int64_t image_shape[] = {SAMPLES, SIZE, SIZE, 1}, held_out_shape[] = {HELD_OUT, SIZE, SIZE, 1};
  const bantam_array training[] = {{"images", BANTAM_UINT8, 4, image_shape, images},
                                   {"labels", BANTAM_INT32, 1, image_shape, labels}};
  const bantam_array held_out[] = {{"images", BANTAM_UINT8, 4, held_out_shape, images + SAMPLES * SIZE * SIZE},
                                   {"labels", BANTAM_INT32, 1, held_out_shape, labels + SAMPLES}};
  bantam_samples train = BANTAM_INIT(bantam_samples), validation = BANTAM_INIT(bantam_samples);
  train.arrays = training;
  train.array_count = 2;
  validation.arrays = held_out;
  validation.array_count = 2;
  bantam_config_options options = BANTAM_INIT(bantam_config_options);
  options.name = "stripes.yaml";
  options.train = &train;
  options.validation = &validation;
  options.batch_size = 32;
  return bantam_config_from_text(kConfig, &options, config);
}

static int train(const bantam_config* config, const char* folder, char** run) {
  bantam_memory_plan plan = BANTAM_INIT(bantam_memory_plan);
  if (bantam_plan(config, 0, &plan) != BANTAM_OK) return failed("plan");
  printf("planned peak: %llu bytes, %llu of them activations\n", (unsigned long long)plan.peak_bytes,
         (unsigned long long)plan.activation_bytes);

  int evaluations = 0;
  bantam_train_options options = BANTAM_INIT(bantam_train_options);
  options.folder = folder;
  options.overwrite = 1;
  options.on_event = on_event;
  options.user = &evaluations;
  bantam_train_result result = BANTAM_INIT(bantam_train_result);
  if (bantam_train(config, &options, &result, run) != BANTAM_OK) return failed("train");
  printf("%d updates, validation accuracy %.3f, peak %llu bytes\n", (int)result.updates, result.validation_accuracy,
         (unsigned long long)result.peak_bytes);
  if (result.validation_accuracy < 0.95 || evaluations != 4) return failed("train: not what was expected");
  if (result.peak_bytes != result.planned_peak_bytes || plan.peak_bytes != result.planned_peak_bytes)
    return failed("train: the plan was not the truth");
  return 0;
}

static int predict(const char* run, const unsigned char* images, const int32_t* labels) {
  const int64_t shape[] = {HELD_OUT, SIZE, SIZE, 1};
  const bantam_array samples = {"images", BANTAM_UINT8, 4, shape, images};
  float outputs[HELD_OUT * CLASSES];
  bantam_model* model = NULL;
  if (bantam_model_open(NULL, run, NULL, &model) != BANTAM_OK) return failed("open");
  if (bantam_model_predict(model, &samples, BANTAM_INPUT_DATA, outputs, HELD_OUT * CLASSES) != BANTAM_OK)
    return failed("predict");
  int right = 0;
  for (int i = 0; i < HELD_OUT; ++i) right += (outputs[2 * i + 1] > outputs[2 * i]) == (labels[i] == 1);
  printf("%d of %d predictions are right\n", right, HELD_OUT);

  char* report = NULL;
  if (bantam_model_memory_report(model, &report) != BANTAM_OK) return failed("memory report");
  const int has_owner = strstr(report, "\"held_bytes\"") != NULL;
  bantam_free(report);
  bantam_model_destroy(model);
  if (right < HELD_OUT * 95 / 100 || !has_owner) return failed("predict: not what was expected");
  return 0;
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : "stripes-run";
  unsigned char* images = malloc((size_t)(SAMPLES + HELD_OUT) * SIZE * SIZE);
  int32_t* labels = malloc((size_t)(SAMPLES + HELD_OUT) * sizeof *labels);
  if (images == NULL || labels == NULL) return 1;
  draw(images, labels, SAMPLES + HELD_OUT, 1u);

  bantam_config* config = NULL;
  char* run = NULL;
  if (make_config(images, labels, &config) != BANTAM_OK) return failed("configuration");
  int status = train(config, folder, &run);
  if (status == 0) status = predict(run, images + SAMPLES * SIZE * SIZE, labels + SAMPLES);
  bantam_free(run);
  bantam_config_destroy(config);
  free(images);
  free(labels);
  return status;
}
