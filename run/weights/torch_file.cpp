// Which dictionary is the state_dict, and contiguous tensors of strided views.
#include "bantam/run/weights/torch_file.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/train/tensor_files.h"
#include "bantam/run/weights/file_kinds.h"
#include "bantam/run/weights/torch_archive.h"
#include "bantam/run/weights/torch_legacy.h"
#include "bantam/run/weights/torch_pickle.h"

namespace bantam::run {

using Kind = PickledValue::Kind;

namespace {

struct ReadType {
  std::string_view name;
  DType dtype;
};
constexpr ReadType kReadTypes[] = {{"float32", DType::float32}, {"float64", DType::float64},
                                   {"float16", DType::float16}, {"bfloat16", DType::bfloat16},
                                   {"int64", DType::int64},     {"int32", DType::int32},
                                   {"uint8", DType::uint8},     {"bool", DType::uint8}};

bool has_any_tensor(const PickledValue& value) { return is_tensor(value) || is_skipped_tensor(value); }

/// The value of a key of a dictionary; null where it is not among the first, which a module's own members are: a file
/// may refer to one long dictionary from many places.
const PickledValue* entry_of(const PickledValue& dictionary, std::string_view key) {
  constexpr std::size_t kFirst = 100;
  for (std::size_t i = 0; i + 1 < std::min(2 * kFirst, dictionary.items.size()); i += 2)
    if (dictionary.items[i]->kind == Kind::text && dictionary.items[i]->text == key) return dictionary.items[i + 1];
  return nullptr;
}

/// The members of an object, a dictionary; null where it has none.
const PickledValue* members_of(const PickledValue& object) {
  const bool has = is_opaque(object) && object.items.size() == 1 && object.items[0]->kind == Kind::dictionary;
  return has ? object.items[0] : nullptr;
}

/// torch.jit.save has a module's tensors and modules as members by their own names.
bool is_scripted(const PickledValue& object) { return object.text.starts_with("__torch__."); }

/// A torch.nn.Module, by its members, whatever its class is.
bool is_module(const PickledValue& value) {
  const PickledValue* members = members_of(value);
  return members != nullptr && (is_scripted(value) || entry_of(*members, "_modules") != nullptr);
}

/// Values by their names in the state_dict that a module would have.
using NamedValues = std::map<std::string, const PickledValue*>;

/// How many entries of modules are looked at in one file. A module may be a part of many, and these of many others: a
/// small file can stand for any number of names.
class EntryBudget {
 public:
  explicit EntryBudget(const TorchSource& file) : file_(file) {}
  void spend() {
    if (++entries_ > kMost) file_.fail(fmt::format("its modules have more than {} entries", format_count(kMost)));
  }

 private:
  static constexpr std::size_t kMost = 5 * kMostTensors;

  const TorchSource& file_;
  std::size_t entries_ = 0;
};

/// Values of a state_dict, or of a module.
class StateDict {
 public:
  StateDict(const PickledValue& value, EntryBudget& budget) : budget_(budget) {
    if (is_module(value))
      add_module(value, "", 0);
    else
      add_entries(value, "");
  }
  NamedValues& values() { return values_; }

 private:
  static constexpr int kDeepest = 32;

  void add_entries(const PickledValue& dictionary, const std::string& prefix) {
    for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2)
      if (dictionary.items[i]->kind == Kind::text)
        values_.insert_or_assign(prefix + std::string(dictionary.items[i]->text), dictionary.items[i + 1]);
  }

  void add_module(const PickledValue& module, const std::string& prefix, int depth) {
    if (depth > kDeepest) return;
    const PickledValue& members = *members_of(module);
    const auto add_modules = [&](const PickledValue& dictionary) {
      for (std::size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
        budget_.spend();
        if (dictionary.items[i]->kind == Kind::text && is_module(*dictionary.items[i + 1]))
          add_module(*dictionary.items[i + 1], prefix + std::string(dictionary.items[i]->text) + ".", depth + 1);
      }
    };
    if (is_scripted(module)) {
      for (std::size_t i = 0; i + 1 < members.items.size(); i += 2) {
        budget_.spend();
        if (members.items[i]->kind == Kind::text && has_any_tensor(*members.items[i + 1]))
          values_.insert_or_assign(prefix + std::string(members.items[i]->text), members.items[i + 1]);
      }
      return add_modules(members);
    }
    for (const char* kind : {"_parameters", "_buffers"}) {
      const PickledValue* own = entry_of(members, kind);
      if (own == nullptr || own->kind != Kind::dictionary) continue;
      for (std::size_t i = 0; i + 1 < own->items.size(); i += 2) {
        budget_.spend();
        if (own->items[i]->kind == Kind::text && own->items[i + 1]->kind != Kind::none)
          values_.insert_or_assign(prefix + std::string(own->items[i]->text), own->items[i + 1]);
      }
    }
    if (const PickledValue* modules = entry_of(members, "_modules");
        modules != nullptr && modules->kind == Kind::dictionary)
      add_modules(*modules);
  }

  EntryBudget& budget_;
  NamedValues values_;
};

/// Dictionaries that have tensors, and modules, by the keys that lead to them; entries of lists by their numbers.
class StateDictSearch {
 public:
  struct Found {
    std::string path;
    const PickledValue* value = nullptr;
    std::size_t tensors = 0;  ///< how many a dictionary has
  };

  StateDictSearch(const PickledValue& root, EntryBudget& budget) : budget_(budget) { search(root, "", 0); }
  const std::vector<Found>& found() const { return found_; }

  /// The only one, or by the names that training programs use, most usual first, or one that is far larger than all
  /// others, or the file's own dictionary, which has tensors of its own ("best_acc1") beside the state_dict more often
  /// than a state_dict has dictionaries; null where none is.
  const Found* preferred() const {
    if (found_.size() == 1) return found_.data();
    for (const char* name : {"state_dict", "model_state_dict", "model_state", "model", "net", "network", "module",
                             "weights", "params", "model_weights", "net_state_dict", "state"})
      for (const Found& each : found_)
        if (each.path == name || each.path.ends_with(fmt::format(".{}", name))) return &each;
    for (const Found& large : found_)
      if (std::ranges::all_of(
              found_, [&](const Found& each) { return &each == &large || kFarLarger * each.tensors <= large.tensors; }))
        return &large;
    const auto outermost = std::ranges::find(found_, "", &Found::path);
    return outermost == found_.end() ? nullptr : &*outermost;
  }

 private:
  static constexpr int kDeepest = 3;
  static constexpr std::size_t kMost = 100, kFarLarger = 10;

  /// Looks into each dictionary once: they may refer to one another.
  void search(const PickledValue& value, const std::string& path, int depth) {
    if (found_.size() >= kMost || !seen_.insert(&value).second) return;
    if (is_module(value)) {
      found_.push_back({path, &value, StateDict(value, budget_).values().size()});
      return;
    }
    const bool dictionary = value.kind == Kind::dictionary;
    if (!dictionary && value.kind != Kind::list && value.kind != Kind::tuple) return;
    const std::vector<PickledValue*>& items = value.items;
    if (dictionary) {
      std::size_t tensors = 0;
      for (std::size_t i = 1; i < items.size(); i += 2)
        tensors += items[i - 1]->kind == Kind::text && has_any_tensor(*items[i]) ? 1 : 0;
      if (tensors > 0) found_.push_back({path, &value, tensors});
    }
    if (depth == kDeepest) return;
    const auto below = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
    for (std::size_t i = 0; i < items.size(); i += dictionary ? 2 : 1)
      if (!dictionary)
        search(*items[i], below(fmt::format("{}", i)), depth + 1);
      else if (items[i]->kind == Kind::text)
        search(*items[i + 1], below(std::string(items[i]->text)), depth + 1);
  }

  EntryBudget& budget_;
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
  if (has_any_tensor(root)) return "a tensor";
  return is_opaque(root) ? fmt::format("an object that '{}' would make (nothing is executed)", shown(root.text))
                         : std::string(kind_name(root.kind));
}

/// Whether there is a name that begins with the key and a dot.
bool has_prefix(const PickledValue& state_dict, const std::string& key, EntryBudget& budget) {
  StateDict state(state_dict, budget);
  const auto found = state.values().lower_bound(key + ".");
  return found != state.values().end() && found->first.starts_with(key + ".");
}

/// Also sets what `result` has of the search: key_is_prefix, beside.
StateDictSearch::Found state_dict_of(const TorchSource& file, const PickledValue& root, const std::string& key,
                                     EntryBudget& budget, TorchFile& result) {
  const StateDictSearch search(root, budget);
  if (search.found().empty())
    file.fail(
        root.kind == Kind::dictionary
            ? std::string("no dictionary in it has tensors")
            : fmt::format("it holds {}, expected a state_dict: torch.save(model.state_dict(), …)", what_is(root)));
  if (!key.empty()) {
    const auto named = std::ranges::find(search.found(), key, &StateDictSearch::Found::path);
    if (named != search.found().end()) return *named;
    if (const StateDictSearch::Found* usual = search.preferred();
        usual != nullptr && has_prefix(*usual->value, key, budget)) {
      result.key_is_prefix = true;
      return *usual;
    }
    file.fail(fmt::format("there is no dictionary of tensors '{}' in it (--key); there are {}", shown(key),
                          names_of(search.found())));
  }
  if (const StateDictSearch::Found* found = search.preferred()) {
    for (const StateDictSearch::Found& other : search.found())
      if (!other.path.empty() && &other != found && 2 * other.tensors >= found->tensors)
        result.beside.push_back(other.path);
    return *found;
  }
  file.fail(fmt::format("it has several dictionaries of tensors ({}): name one with --key", names_of(search.found())));
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
  const std::vector<PickledValue*>& storage = tensor.items[0]->items;
  if (storage.size() == 5) {  // a view of another storage, of which the view is a view
    const std::int64_t begin = storage[3]->integer, elements = storage[4]->integer;
    if (begin < 0 || elements < 0 || begin > count || elements > count - begin || view.offset < 0 ||
        view.offset > elements)
      return std::nullopt;
    view.offset += begin;
    count = begin + elements;
  }
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

std::string_view storage_key(const PickledValue& tensor) { return tensor.items[0]->items[1]->text; }

/// "float32": of the tensor itself, or of its storage.
std::string type_of(const PickledValue& tensor) {
  if (is_skipped_tensor(tensor)) return std::string(tensor.items[0]->text);
  if (tensor.items.size() < 5) return torch_type(tensor.items[0]->items[0]->text);
  const std::string_view name = tensor.items[4]->text;
  return std::string(name.starts_with("torch.") ? name.substr(6) : name);
}

const ReadType* read_type(const PickledValue& tensor) {
  if (is_skipped_tensor(tensor) || tensor.items.size() > 4) return nullptr;
  const auto* type = std::ranges::find(kReadTypes, type_of(tensor), &ReadType::name);
  return type == std::end(kReadTypes) ? nullptr : type;
}

/// Its type, and its shape as far as that is known.
SkippedTensor skipped_of(const PickledValue& tensor) {
  SkippedTensor skipped{.type = type_of(tensor)};
  const std::size_t at = is_skipped_tensor(tensor) ? 1 : 2;
  if (tensor.items.size() <= at) return skipped;
  const auto sizes = integers_of(*tensor.items[at]);
  try {
    if (sizes) skipped.shape = Shape(std::span<const std::int64_t>(*sizes));
  } catch (const ShapeError&) {
    skipped.shape = {};  // nothing is made of it
  }
  return skipped;
}

/// Makes tensors of one file.
class TensorReader {
 public:
  explicit TensorReader(TorchSource& file) : file_(file) {}

  HostTensor read(const std::string& name, const PickledValue& tensor, DType dtype) {
    const PickledValue& storage = *tensor.items[0];
    const std::string_view key = storage_key(tensor);
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const std::int64_t count = storage.items[2]->integer;
    const auto bytes = file_.storage_bytes(key);
    if (!bytes) fail(name, fmt::format("needs the storage '{}', which is missing", shown(key)));
    if (count < 0 || count > *bytes / size || count * size != *bytes)
      fail(name, fmt::format("has a storage of {} elements in {} bytes", count, *bytes));
    const auto view = view_of(tensor, count, left() / size);
    if (!view)
      fail(name, fmt::format("does not lie within its storage of {} elements, or is too large for the file", count));
    made_ += static_cast<std::uint64_t>(view->elements * size);
    return {dtype, shape_of(name, *view),
            view->elements == 0
                ? std::vector<std::byte>()
                : gathered(file_.storage(key), *view, static_cast<std::size_t>(size), file_.swaps_bytes())};
  }

 private:
  /// Tensors that share storages have a few times their bytes at most; those of stride 0 would have any number.
  static constexpr std::uint64_t kMostSharing = 4, kAnyFile = std::uint64_t{1} << 20;

  std::int64_t left() const {
    return static_cast<std::int64_t>(kMostSharing * file_.member_bytes() + kAnyFile - made_);
  }
  /// Returns the view's shape or fails: in a tensor without elements a file may have any numbers beside the 0.
  Shape shape_of(const std::string& name, const TensorView& view) const {
    try {
      return Shape(std::span<const std::int64_t>(view.sizes));
    } catch (const ShapeError& error) {
      fail(name, fmt::format("has a shape that is not read: {}", error.what()));
    }
  }
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    file_.fail(fmt::format("tensor '{}' {}", shown(name), what));
  }

  TorchSource& file_;
  std::uint64_t made_ = 0;  // bytes of all tensors so far
};

}  // namespace

void TorchSource::fail(const std::string& what) const {
  throw DataError(fmt::format("{}: is no file of PyTorch that is read here: {}", path_.string(), what));
}

std::unique_ptr<TorchSource> open_torch_source(const std::filesystem::path& path) {
  const std::string begin = first_bytes(path, kTorchLegacyBegin);
  if (is_torch_legacy(begin)) return std::make_unique<TorchLegacyFile>(path);
  if (begin.starts_with("PK")) return std::make_unique<TorchArchive>(path);
  const std::string kind = other_kind(path, first_bytes(path, kFileKindBegin));
  throw DataError(fmt::format("{}: is no file of PyTorch{}{}", path.string(), kind.empty() ? "" : ": ", kind));
}

TorchFile read_torch_file(const std::filesystem::path& path, const std::string& key) {
  const std::unique_ptr<TorchSource> source = open_torch_source(path);
  PickledValues values;
  const PickledValue& root = source->load(values);
  TorchFile file;
  EntryBudget budget(*source);
  const StateDictSearch::Found found = state_dict_of(*source, root, key, budget, file);
  file.found_at = found.path;
  if (is_module(*found.value)) file.module = std::string(found.value->text);
  StateDict state(*found.value, budget);
  if (state.values().size() > kMostTensors)
    source->fail(fmt::format("it has more than {} tensors", format_count(kMostTensors)));
  std::vector<std::pair<std::string, const PickledValue*>> tensors;
  for (const auto& [name, value] : state.values())
    if (!has_any_tensor(*value))
      file.others.push_back(name);
    else if (read_type(*value) == nullptr)
      file.skipped.emplace(name, skipped_of(*value));
    else
      tensors.emplace_back(name, value);
  // Each storage is read once, however many tensors share it, and in whatever order.
  std::ranges::stable_sort(tensors, {}, [](const auto& tensor) { return storage_key(*tensor.second); });
  TensorReader reader(*source);
  for (const auto& [name, tensor] : tensors)
    file.tensors.emplace(name, reader.read(name, *tensor, read_type(*tensor)->dtype));
  return file;
}

bool is_torch_file(std::string_view first_bytes) {
  if (first_bytes.size() > 8 && first_bytes[8] == '{') return false;
  return first_bytes.starts_with("PK") || is_torch_legacy(first_bytes);
}

}  // namespace bantam::run
