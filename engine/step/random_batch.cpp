// Values are drawn on the host, a block of pixels at most, and copied to the device as often as the batch asks for.
#include "bantam/engine/step/random_batch.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bantam/base/dtype.h"

namespace bantam {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // values

template <class T>
void fill_floats(const Tensor& tensor, PhiloxSequence& random, Stream stream) {
  const std::int64_t elements = tensor.shape().elements();
  std::vector<T> values(static_cast<std::size_t>(std::min(elements, kBlock)));
  const float limit = std::sqrt(3.0f);
  for (T& value : values) value = T(random.uniform(-limit, limit));
  for (std::int64_t at = 0; at < elements; at += kBlock)
    copy_bytes(tensor.as<T>() + at, values.data(),
               static_cast<std::size_t>(std::min(kBlock, elements - at)) * sizeof(T), stream);
  synchronize(stream);  // before the values go
}

void fill_labels(const Tensor& labels, std::uint64_t classes, PhiloxSequence& random, Stream stream) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(labels.shape().elements()));
  for (std::int32_t& value : values) value = static_cast<std::int32_t>(random.below(classes));
  copy_bytes(labels.data(), values.data(), labels.bytes(), stream);
  synchronize(stream);
}

/// Fills floats and class numbers (int32 below `classes`) at random, tensors of any other kind with zeros.
void fill(const Tensor& tensor, std::int64_t classes, PhiloxSequence& random, Stream stream) {
  switch (tensor.dtype()) {
    case DType::float32:
      return fill_floats<float>(tensor, random, stream);
    case DType::float16:
      return fill_floats<Half>(tensor, random, stream);
    case DType::bfloat16:
      return fill_floats<BFloat16>(tensor, random, stream);
    case DType::int32:
      if (classes > 0) return fill_labels(tensor, static_cast<std::uint64_t>(classes), random, stream);
      break;
    default:
      break;
  }
  zero_bytes(tensor.data(), tensor.bytes(), stream);
}

}  // namespace

Batch random_batch(const Model& model, std::int64_t size, PhiloxKey key, const LossOptions& loss) {
  Batch batch = allocate_batch(model, size, loss);  // first: what does not fit costs no time
  if (model.device().meta) return batch;            // shapes are all that a meta device has
  const Stream stream = model.runtime().stream(model.device());
  const std::vector<TensorFacts> targets = targets_of(loss, model.graph().output_shape());
  PhiloxSequence random(key);
  for (const auto& [name, tensor] : batch.tensors) {
    const TensorFacts* facts = find_facts(targets, name);
    fill(tensor, facts != nullptr ? facts->classes : 0, random, stream);
  }
  return batch;
}

}  // namespace bantam
