// Bantam: build or load a model, train it with Trainer or a loop of the program's own, plan and limit its memory, save
// it and predict with it, or run all that a configuration says. This header has all of it; each of those it includes
// can be included by itself.
//
//     #include "bantam/bantam.h"
//     int main() { bantam::Runtime runtime; }
#pragma once

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/data/augment/augmentation.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/models/infer/predictor.h"
#include "bantam/models/yaml/network.h"
#include "bantam/models/zoo/zoo.h"
#include "bantam/run/run.h"
