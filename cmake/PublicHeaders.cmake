# The headers that are installed, by name: what a program may include. An installed header includes installed ones only, and shows no
# CUDA, oneDNN or Eigen type, no kernel tiling and no protocol between ops (tests/public).
set(BANTAM_PUBLIC_HEADERS
  bantam.h
  # values
  base/activation.h
  base/config/config.h
  base/config/config_registry.h
  base/dtype.h
  base/duration.h
  base/error.h
  base/philox.h
  base/registry.h
  base/shape.h
  base/text.h
  packing/planner.h
  # devices and memory
  engine/runtime/precision.h
  engine/runtime/runtime.h
  kernels/contracts/exec.h
  kernels/contracts/head/metric_sums.h
  memory/allocator/accounting.h
  memory/allocator/allocation_trace.h
  memory/allocator/allocator.h
  memory/device/device.h
  memory/device/process_memory.h
  memory/device/stream.h
  memory/pages/region_source.h
  memory/reports/memory_report.h
  # tensors, gradients, ops
  engine/autograd/cast.h
  engine/autograd/context.h
  engine/autograd/geometry.h
  engine/autograd/gradient.h
  engine/autograd/initializer.h
  engine/autograd/parameters.h
  engine/autograd/state_registry.h
  engine/autograd/tape.h
  engine/autograd/tensor.h
  engine/autograd/tensor_map.h
  engine/ops/ops.h
  engine/ops/softmax_cross_entropy.h
  # models
  engine/graph/graph.h
  engine/graph/model.h
  engine/layers/device_sums.h
  engine/layers/layer.h
  engine/layers/layers.h
  engine/layers/loss.h
  engine/layers/losses.h
  engine/program/recompute_options.h
  models/yaml/layer_kinds.h
  models/yaml/network.h
  models/zoo/zoo.h
  # data, training and plans
  data/formats/sample_reader.h
  engine/plan/step_plan.h
  engine/step/batch_source.h
  engine/step/metric.h
  engine/step/micro_batches.h
  engine/step/optimizer.h
  engine/step/optimizers.h
  engine/step/step_mode.h
  engine/step/training_step.h
  engine/step/update_rule.h
  engine/train/callbacks.h
  engine/train/safetensors.h
  engine/train/schedule.h
  engine/train/trainer.h)
