// Values are drawn on the host, a block of pixels at most, and copied to the device as often as the batch asks for.
#include "bantam/engine/step/random_batch.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bantam/base/half.h"

namespace bantam {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // values

template <class T>
void fill_images(const Tensor& images, PhiloxSequence& random, Stream stream) {
  const std::int64_t elements = images.shape().elements();
  std::vector<T> values(static_cast<std::size_t>(std::min(elements, kBlock)));
  const float limit = std::sqrt(3.0f);
  for (T& value : values) value = T(random.uniform(-limit, limit));
  for (std::int64_t at = 0; at < elements; at += kBlock)
    copy_bytes(images.as<T>() + at, values.data(),
               static_cast<std::size_t>(std::min(kBlock, elements - at)) * sizeof(T), stream);
  synchronize(stream);  // before the values go
}

void fill_labels(const Tensor& labels, std::uint64_t classes, PhiloxSequence& random, Stream stream) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(labels.shape().elements()));
  for (std::int32_t& value : values) value = static_cast<std::int32_t>(random.below(classes));
  copy_bytes(labels.data(), values.data(), labels.bytes(), stream);
  synchronize(stream);
}

}  // namespace

Batch random_batch(const Model& model, std::int64_t size, PhiloxKey key) {
  Batch batch = allocate_batch(model, size);  // first: what does not fit costs no time
  if (model.device().meta) return batch;      // shapes are all that a meta device has
  const Stream stream = model.runtime().stream(model.device());
  PhiloxSequence random(key);
  switch (batch.at(kImages).dtype()) {
    case DType::float16:
      fill_images<Half>(batch.at(kImages), random, stream);
      break;
    case DType::bfloat16:
      fill_images<BFloat16>(batch.at(kImages), random, stream);
      break;
    default:
      fill_images<float>(batch.at(kImages), random, stream);
      break;
  }
  fill_labels(batch.at(kLabels), static_cast<std::uint64_t>(model.graph().output_shape()[0]), random, stream);
  return batch;
}

}  // namespace bantam
