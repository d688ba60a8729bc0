// CIFAR-100's files and classes. Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
// https://www.cs.toronto.edu/~kriz/cifar.html
#include "bantam/base/config/config.h"
#include "bantam/data/formats/cifar.h"

namespace bantam {
namespace {

const std::vector<std::string> kCoarse = {"aquatic_mammals",
                                          "fish",
                                          "flowers",
                                          "food_containers",
                                          "fruit_and_vegetables",
                                          "household_electrical_devices",
                                          "household_furniture",
                                          "insects",
                                          "large_carnivores",
                                          "large_man-made_outdoor_things",
                                          "large_natural_outdoor_scenes",
                                          "large_omnivores_and_herbivores",
                                          "medium_mammals",
                                          "non-insect_invertebrates",
                                          "people",
                                          "reptiles",
                                          "small_mammals",
                                          "trees",
                                          "vehicles_1",
                                          "vehicles_2"};
const std::vector<std::string> kFine = {
    "apple",      "aquarium_fish", "baby",         "bear",       "beaver",      "bed",         "bee",
    "beetle",     "bicycle",       "bottle",       "bowl",       "boy",         "bridge",      "bus",
    "butterfly",  "camel",         "can",          "castle",     "caterpillar", "cattle",      "chair",
    "chimpanzee", "clock",         "cloud",        "cockroach",  "couch",       "crab",        "crocodile",
    "cup",        "dinosaur",      "dolphin",      "elephant",   "flatfish",    "forest",      "fox",
    "girl",       "hamster",       "house",        "kangaroo",   "keyboard",    "lamp",        "lawn_mower",
    "leopard",    "lion",          "lizard",       "lobster",    "man",         "maple_tree",  "motorcycle",
    "mountain",   "mouse",         "mushroom",     "oak_tree",   "orange",      "orchid",      "otter",
    "palm_tree",  "pear",          "pickup_truck", "pine_tree",  "plain",       "plate",       "poppy",
    "porcupine",  "possum",        "rabbit",       "raccoon",    "ray",         "road",        "rocket",
    "rose",       "sea",           "seal",         "shark",      "shrew",       "skunk",       "skyscraper",
    "snail",      "snake",         "spider",       "squirrel",   "streetcar",   "sunflower",   "sweet_pepper",
    "table",      "tank",          "telephone",    "television", "tiger",       "tractor",     "train",
    "trout",      "tulip",         "turtle",       "wardrobe",   "whale",       "willow_tree", "wolf",
    "woman",      "worm"};

CifarSet cifar100_set(bool fine) {
  return {.name = "CIFAR-100",
          .train = {{"train.bin", "train", ""}},
          .test = {{"test.bin", "test", ""}},
          .binary_folder = "cifar-100-binary",
          .python_folder = "cifar-100-python",
          .binary_archive = "cifar-100-binary.tar.gz",
          .python_archive = "cifar-100-python.tar.gz",
          .label_keys = {"coarse_labels", "fine_labels"},
          .label = fine ? 1u : 0u,
          .classes = fine ? kFine : kCoarse};
}

}  // namespace

/// `data: {format: cifar100}`: path, labels.
SampleSplits cifar100_format(ConfigMap& data) {
  data.describe("CIFAR-100 as it is downloaded: 50,000 and 10,000 images, 32 × 32 in colour, of 100 classes.");
  const bool fine =
      data.choice({"labels", "fine: the 100 classes. coarse: the 20 kinds that they belong to, five each.", "coarse"},
                  {"fine", "coarse"}, "fine") == "fine";
  constexpr std::int64_t kTrain = 50000, kTest = 10000;
  const CifarSet set = cifar100_set(fine);
  return cifar_readers(set, read_cifar_path(data, set), kTrain, kTest);
}

}  // namespace bantam
