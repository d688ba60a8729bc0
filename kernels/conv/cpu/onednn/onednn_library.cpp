// oneDNN as a library of convolutions: kernels for full blocks, for the last one, and between orders of weights.
#include <optional>

#include <fmt/core.h>

#include "bantam/kernels/common/cpu/conv_library.h"
#include "bantam/kernels/conv/cpu/onednn/onednn_conv2d.h"

namespace bantam::kernels::cpu {
namespace {

class OneDnnBlocks final : public LibraryConv2d {
 public:
  bool reorders() const override { return weights_ != nullptr; }
  std::int64_t packed_floats() const override { return static_cast<std::int64_t>(block_->packed().get_size() / 4); }
  void reorder(const float* from, float* to, int threads) const override { weights_->execute(from, to, threads); }
  void execute(std::int64_t images, const float* first, const float* second, float* out, void* scratch) const override {
    (images == images_ ? block_ : last_)->execute(first, second, out, scratch);
  }

 private:
  friend class OneDnn;
  std::int64_t images_ = 0;
  std::unique_ptr<OneDnnConv2d> block_;
  std::unique_ptr<OneDnnConv2d> last_;      ///< where the last block is shorter
  std::unique_ptr<WeightReorder> weights_;  ///< plain to packed; grad_weight: packed to plain. Null: they are the same
};

/// oneDNN's engine starts with the first convolution.
class OneDnn final : public ConvLibrary {
 public:
  std::unique_ptr<LibraryConv2d> make(const Conv2dShape& shape, Conv2dPass pass, const Conv2dPlan& plan) override {
    if (!engine_) engine_.emplace(dnnl::engine::kind::cpu, 0);
    const OneDnnLimits limits{plan.packed_bytes, plan.scratch_bytes};
    auto made = std::make_unique<OneDnnBlocks>();
    Conv2dShape block = shape;
    block.batch = made->images_ = plan.block;
    made->block_ = OneDnnConv2d::make(*engine_, block, pass, limits, nullptr);
    if (!made->block_) return nullptr;
    const dnnl::memory::desc packed = made->block_->packed(), plain = plain_weights(shape);
    block.batch = shape.batch % plan.block;
    if (block.batch > 0) {
      made->last_ = OneDnnConv2d::make(*engine_, block, pass, limits, &packed);
      if (!made->last_) return nullptr;
    }
    if (packed == plain) return made;
    try {
      const bool unpack = pass == Conv2dPass::grad_weight;
      made->weights_ = std::make_unique<WeightReorder>(*engine_, unpack ? packed : plain, unpack ? plain : packed);
    } catch (const dnnl::error&) {
      return nullptr;
    }
    return made;
  }

 private:
  std::optional<dnnl::engine> engine_;
};

}  // namespace

std::unique_ptr<ConvLibrary> make_conv_library() { return std::make_unique<OneDnn>(); }

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace bantam::kernels::cpu
