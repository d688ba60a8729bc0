// Which dictionary is the state_dict, and contiguous tensors of strided views.
#include "bantam/run/weights/torch_file.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/stable_sort.h"
#include "bantam/base/text.h"
#include "bantam/run/weights/torch_archive.h"
#include "bantam/run/weights/torch_pickle.h"

namespace bantam::run {

using Kind = PickledValue::Kind;

namespace {

struct StorageType {
  std::string_view name;
  DType dtype;
};
constexpr StorageType kStorageTypes[] = {
    {"torch.FloatStorage", DType::float32}, {"torch.DoubleStorage", DType::float64},
    {"torch.HalfStorage", DType::float16},  {"torch.BFloat16Storage", DType::bfloat16},
    {"torch.LongStorage", DType::int64},    {"torch.IntStorage", DType::int32},
    {"torch.ByteStorage", DType::uint8},    {"torch.BoolStorage", DType::uint8}};

/// Dictionaries that have tensors, by the keys that lead to them.
class StateDictSearch {
 public:
  struct Found {
    std::string path;
    const PickledValue* dictionary = nullptr;
  };

  explicit StateDictSearch(const PickledValue& root) { search(root, "", 0); }
  const std::vector<Found>& found() const { return found_; }

  /// The only one, or by the names that training programs use, most usual first, or the file's own dictionary, which
  /// has tensors of its own ("best_acc1") beside the state_dict more often than a state_dict has dictionaries; null
  /// where none is.
  const Found* preferred() const {
    if (found_.size() == 1) return found_.data();
    for (const char* name :
         {"state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "weights", "params"})
      for (const Found& each : found_)
        if (each.path == name || each.path.ends_with(fmt::format(".{}", name))) return &each;
    const auto outermost = std::ranges::find(found_, "", &Found::path);
    return outermost == found_.end() ? nullptr : &*outermost;
  }

 private:
  static constexpr int kDeepest = 3;
  static constexpr std::size_t kMost = 100;

  /// Looks into each dictionary once: they may refer to one another.
  void search(const PickledValue& dictionary, const std::string& path, int depth) {
    if (!seen_.insert(&dictionary).second || found_.size() >= kMost) return;
    const std::vector<PickledValue*>& items = dictionary.items;
    bool has_tensors = false;
    for (std::size_t i = 1; i < items.size() && !has_tensors; i += 2) has_tensors = is_tensor(*items[i]);
    if (has_tensors) found_.push_back({path, &dictionary});
    for (std::size_t i = 0; i + 1 < items.size() && depth < kDeepest; i += 2) {
      if (items[i]->kind != Kind::text || items[i + 1]->kind != Kind::dictionary) continue;
      const std::string name(text_of(*items[i]));
      search(*items[i + 1], path.empty() ? name : path + "." + name, depth + 1);
    }
  }

  std::vector<Found> found_;
  std::set<const PickledValue*> seen_;
};

std::string names_of(const std::vector<StateDictSearch::Found>& found) {
  std::vector<std::string> names;
  for (const StateDictSearch::Found& each : found)
    names.push_back(each.path.empty() ? "the file itself, without --key" : fmt::format("'{}'", shown(each.path)));
  return shown(join(names, ", ", " and "), 400);
}

std::string what_is(const PickledValue& root) {
  if (is_tensor(root)) return "a tensor";
  return is_opaque(root) ? fmt::format("an object that '{}' would make (nothing is executed)", shown(root.text))
                         : std::string(kind_name(root.kind));
}

StateDictSearch::Found state_dict_of(const TorchArchive& archive, const PickledValue& root, const std::string& key) {
  if (root.kind != Kind::dictionary)
    archive.fail(fmt::format("it holds {}, expected a state_dict: torch.save(model.state_dict(), …)", what_is(root)));
  const StateDictSearch search(root);
  if (search.found().empty()) archive.fail("no dictionary in it has tensors");
  if (!key.empty()) {
    const auto named = std::ranges::find(search.found(), key, &StateDictSearch::Found::path);
    if (named != search.found().end()) return *named;
    archive.fail(fmt::format("there is no dictionary of tensors '{}' in it (--key); there are {}", shown(key),
                             names_of(search.found())));
  }
  if (const StateDictSearch::Found* found = search.preferred()) return *found;
  archive.fail(
      fmt::format("it has several dictionaries of tensors ({}): name one with --key", names_of(search.found())));
}

/// A view of a storage.
struct TensorView {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0, elements = 1;
};

std::optional<std::vector<std::int64_t>> integers_of(const PickledValue& tuple) {
  std::vector<std::int64_t> values;
  for (const PickledValue* item : tuple.items) {
    if (item->kind != Kind::integer || item->integer < 0) return std::nullopt;
    values.push_back(item->integer);
  }
  return values;
}

/// Nothing unless all elements lie within the storage of `count`, and are at most `most`.
std::optional<TensorView> view_of(const PickledValue& tensor, std::int64_t count, std::int64_t most) {
  const auto sizes = integers_of(*tensor.items[2]), strides = integers_of(*tensor.items[3]);
  if (!sizes || !strides || sizes->size() != strides->size() || sizes->size() > Shape::kMaxRank) return std::nullopt;
  TensorView view{*sizes, *strides, tensor.items[1]->integer};
  if (view.offset < 0 || view.offset > count) return std::nullopt;
  if (std::ranges::find(*sizes, 0) != sizes->end()) {
    view.elements = 0;
    return view;
  }
  std::int64_t last = view.offset;
  for (std::size_t i = 0; i < sizes->size(); ++i) {
    std::int64_t reach = 0;
    if ((*sizes)[i] == 1) view.strides[i] = 0;  // any number may stand there
    if (__builtin_mul_overflow((*sizes)[i] - 1, view.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last) || last >= count ||
        __builtin_mul_overflow(view.elements, (*sizes)[i], &view.elements) || view.elements > most)
      return std::nullopt;
  }
  if (last >= count) return std::nullopt;
  return view;
}

/// The view's elements in C order, each of `size` bytes, whose order is reversed where `swaps`.
std::vector<std::byte> gathered(const std::vector<std::uint8_t>& storage, const TensorView& view, std::size_t size,
                                bool swaps) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(view.elements) * size);
  std::vector<std::int64_t> index(view.sizes.size());
  std::int64_t at = view.offset;
  for (std::size_t to = 0; to < bytes.size(); to += size) {
    const auto* from = reinterpret_cast<const std::byte*>(storage.data()) + static_cast<std::size_t>(at) * size;
    if (swaps)
      std::reverse_copy(from, from + size, bytes.data() + to);
    else
      std::memcpy(bytes.data() + to, from, size);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      at += view.strides[axis];
      if (++index[axis] < view.sizes[axis]) break;
      at -= view.strides[axis] * view.sizes[axis];
      index[axis] = 0;
    }
  }
  return bytes;
}

std::string_view storage_key(const PickledValue& tensor) { return text_of(*tensor.items[0]->items[1]); }

/// Makes tensors of one archive.
class TensorReader {
 public:
  explicit TensorReader(TorchArchive& archive) : archive_(archive) {}

  HostTensor read(const std::string& name, const PickledValue& tensor) {
    const PickledValue& storage = *tensor.items[0];
    const std::string& type_name = storage.items[0]->text;
    const auto* type = std::ranges::find(kStorageTypes, type_name, &StorageType::name);
    if (type == std::end(kStorageTypes)) fail(name, fmt::format("is of {}, which is not read", type_name));
    const std::string_view key = storage_key(tensor);
    const auto size = static_cast<std::int64_t>(size_of(type->dtype));
    const std::int64_t count = storage.items[2]->integer;
    const auto bytes = archive_.storage_bytes(key);
    if (!bytes) fail(name, fmt::format("needs the storage '{}', which is missing", shown(key)));
    if (count < 0 || count > *bytes / size || count * size != *bytes)
      fail(name, fmt::format("has a storage of {} elements in {} bytes", count, *bytes));
    const auto view = view_of(tensor, count, left() / size);
    if (!view)
      fail(name, fmt::format("does not lie within its storage of {} elements, or is too large for the file", count));
    made_ += static_cast<std::uint64_t>(view->elements * size);
    return {type->dtype, shape_of(name, *view),
            view->elements == 0
                ? std::vector<std::byte>()
                : gathered(archive_.storage(key), *view, static_cast<std::size_t>(size), archive_.swaps_bytes())};
  }

 private:
  /// Tensors that share storages have a few times their bytes at most; those of stride 0 would have any number.
  static constexpr std::uint64_t kMostSharing = 4, kAnyFile = std::uint64_t{1} << 20;

  std::int64_t left() const {
    return static_cast<std::int64_t>(kMostSharing * archive_.member_bytes() + kAnyFile - made_);
  }
  /// Of a tensor without elements the other extents may be any.
  Shape shape_of(const std::string& name, const TensorView& view) const {
    try {
      return Shape(std::span<const std::int64_t>(view.sizes));
    } catch (const ShapeError& error) {
      fail(name, fmt::format("has a shape that is not read: {}", error.what()));
    }
  }
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    archive_.fail(fmt::format("tensor '{}' {}", shown(name), what));
  }

  TorchArchive& archive_;
  std::uint64_t made_ = 0;  // bytes of all tensors so far
};

}  // namespace

TorchFile read_torch_file(const std::filesystem::path& path, const std::string& key) {
  TorchArchive archive(path);
  const std::vector<std::uint8_t> pickle = archive.pickle();
  std::deque<PickledValue> values;
  const PickledValue& root = *TorchPickle(archive.pickle_name(), pickle, values).run();
  const StateDictSearch::Found found = state_dict_of(archive, root, key);
  TorchFile file{.found_at = found.path};
  std::map<std::string, const PickledValue*> by_name;
  const std::vector<PickledValue*>& items = found.dictionary->items;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->kind != Kind::text) archive.fail(fmt::format("a tensor's name is {}", kind_name(items[i]->kind)));
    by_name.insert_or_assign(std::string(text_of(*items[i])), items[i + 1]);
  }
  std::vector<std::pair<std::string, const PickledValue*>> tensors;
  for (const auto& [name, value] : by_name)
    if (is_tensor(*value))
      tensors.emplace_back(name, value);
    else
      file.others.push_back(name);
  // Each storage is read once, however many tensors share it, and in whatever order.
  sort_stably(tensors, {}, [](const auto& tensor) { return storage_key(*tensor.second); });
  TensorReader reader(archive);
  for (const auto& [name, tensor] : tensors) file.tensors.emplace(name, reader.read(name, *tensor));
  return file;
}

bool is_torch_file(std::string_view first_bytes) {
  if (first_bytes.size() >= kTorchFileBegin && first_bytes[kTorchFileBegin - 1] == '{') return false;
  return first_bytes.starts_with("PK") || first_bytes.starts_with("\x80\x02");
}

}  // namespace bantam::run
