// Bantam: build or load a model, train it with Trainer or a loop of the program's own, plan and limit its memory, save
// it and predict with it. This header has all of it; each of those it includes can be included by itself.
//
//     #include "bantam/bantam.h"
#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/graph/model.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/ops/softmax_cross_entropy.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/engine/step/optimizers.h"
#include "bantam/engine/train/callbacks.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/allocator/allocation_trace.h"
#include "bantam/models/yaml/layer_kinds.h"
#include "bantam/models/yaml/network.h"
#include "bantam/models/zoo/zoo.h"
#pragma once
//     int main() { bantam::Runtime runtime; }
