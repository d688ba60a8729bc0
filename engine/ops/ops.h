// All ops. Each checks shapes, allocates its output, calls its kernel, and records its backward.
#pragma once

#include "bantam/engine/autograd/cast.h"
#include "bantam/engine/ops/activation.h"
#include "bantam/engine/ops/add.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/ops/bias.h"
#include "bantam/engine/ops/classifier_head.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/engine/ops/dense.h"
#include "bantam/engine/ops/depthwise_conv2d.h"
#include "bantam/engine/ops/dropout.h"
#include "bantam/engine/ops/norm_depthwise.h"
#include "bantam/engine/ops/pool2d.h"
#include "bantam/engine/ops/reshape.h"
#include "bantam/engine/ops/separable_block.h"
#include "bantam/engine/ops/softmax_cross_entropy.h"
