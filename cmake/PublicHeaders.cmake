# The headers that are installed, by name: what a program may include. An installed header includes installed ones only, and shows no
# CUDA, oneDNN or Eigen type, no kernel tiling and no protocol between ops (tests/public).
set(BANTAM_PUBLIC_HEADERS
  bantam.h
  # values
  base/activation.h
  base/api.h
  base/config/config.h
  base/config/registry.h
  base/dtype.h
  base/error.h
  base/philox.h
  base/shape.h
  packing/planner.h
  # devices and memory
  engine/runtime/runtime.h
  engine/interop/external_memory.h
  engine/interop/pool_functions.h
  kernels/common/exec.h
  memory/allocator/accounting.h
  memory/allocator/allocator.h
  memory/device/device.h
  memory/pages/region_source.h
  memory/reports/memory_report.h
  # tensors, gradients, ops
  engine/autograd/context.h
  engine/autograd/parameters.h
  engine/autograd/tape.h
  engine/autograd/tensor.h
  engine/interop/dlpack.h
  engine/interop/dlpack_abi.h
  engine/ops/ops.h
  # models
  engine/graph/graph.h
  engine/model/model.h
  engine/layers/layer.h
  engine/layers/layers.h
  engine/losses/loss.h
  models/infer/predictor.h
  engine/program/recompute_options.h
  models/yaml/network.h
  models/zoo/zoo.h
  # data, training, plans and whole runs
  data/augment/augmentation.h
  data/formats/sample_reader.h
  engine/plan/step_plan.h
  engine/step/batch_source.h
  engine/step/evaluation_views.h
  engine/metrics/metric.h
  engine/optimizers/built_in.h
  engine/optimizers/optimizer.h
  engine/optimizers/pruning.h
  engine/optimizers/schedule.h
  engine/optimizers/update_rule.h
  engine/optimizers/weight_average.h
  engine/step/training_step.h
  engine/train/safetensors.h
  engine/train/trainer.h
  run/run.h)
