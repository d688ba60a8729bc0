// CIFAR-10's files and classes.
#include "bantam/data/formats/cifar10.h"

#include "bantam/base/config/config.h"
#include "bantam/data/formats/cifar.h"

namespace bantam {
namespace {

CifarSet cifar10_set() {
  return {
      .name = "CIFAR-10",
      .train =
          {{"data_batch_1.bin", "data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
           {"data_batch_2.bin", "data_batch_2", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
           {"data_batch_3.bin", "data_batch_3", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
           {"data_batch_4.bin", "data_batch_4", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
           {"data_batch_5.bin", "data_batch_5", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"}},
      .test = {{"test_batch.bin", "test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}},
      .binary_folder = "cifar-10-batches-bin",
      .python_folder = "cifar-10-batches-py",
      .binary_archive = "cifar-10-binary.tar.gz",
      .python_archive = "cifar-10-python.tar.gz",
      .label_keys = {"labels"},
      .classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
}

}  // namespace

SampleSplits cifar10_readers(const Cifar10Options& options) {
  CifarSet set = cifar10_set();
  if (options.sha256) {
    for (std::size_t f = 0; f < set.train.size(); ++f) set.train[f].sha256 = (*options.sha256)[f];
    set.test[0].sha256 = options.sha256->back();
  }
  return cifar_readers(set, {.path = options.path, .is_there = true}, options.records_per_file,
                       options.records_per_file);
}

/// `data: {format: cifar10}`: path.
SampleSplits cifar10_format(ConfigMap& data) {
  data.describe("CIFAR-10 as it is downloaded: 50,000 and 10,000 images, 32 × 32 in colour, ten classes.");
  const CifarSet set = cifar10_set();
  const std::int64_t records = Cifar10Options{}.records_per_file;
  return cifar_readers(set, read_cifar_path(data, set), records, records);
}

}  // namespace bantam
