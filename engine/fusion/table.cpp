// The patterns of fusion, a row each.
#include "bantam/engine/fusion/fusion.h"

namespace bantam {
namespace fusion {

// Each is defined in the file of its name, or in the one that its row names.
extern const FusionPattern kExpandSum, kNormDepthwise, kNormPool, kNormSqueezeExcite, kSeparableBlockPooled,
    kSeparableBlock, kConvPool, kClassifierHead, kLayerSum, kLayerEpilogue, kFrozenConv2d, kConvRelu, kDenseAdd;

}  // namespace fusion

std::span<const FusionPattern* const> fusion_patterns() {
  static constexpr const FusionPattern* kTable[] = {
      &fusion::kExpandSum,
      &fusion::kNormDepthwise,
      &fusion::kNormPool,
      &fusion::kNormSqueezeExcite,
      &fusion::kSeparableBlockPooled,  // separable_block.cpp
      &fusion::kSeparableBlock,
      &fusion::kConvPool,
      &fusion::kClassifierHead,
      &fusion::kLayerSum,  // layer_epilogue.cpp
      &fusion::kLayerEpilogue,
      &fusion::kFrozenConv2d,
      &fusion::kConvRelu,
      &fusion::kDenseAdd,
  };
  return kTable;
}

}  // namespace bantam
