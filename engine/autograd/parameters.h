// Parameters and buffers of a model in flat arenas: one span table, parallel slots (master, compute copy, gradient,
// moments); groups of parameters by their names; their initial values, pure functions of (seed, parameter name, shape);
// and StateRegistry, the one list of all that outlives a step, for checkpoints, comparison and roll-back.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/philox.h"
#include "bantam/base/shape.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

BANTAM_API_BEGIN
namespace bantam {

/// How many inputs feed an output and the other way round: what variance-scaling initialisers need.
struct Fans {
  double in = 1, out = 1;
};

/// Fills `values` (shape's elements). `random` is keyed by seed and name. Data-dependent initialisers capture their
/// data.
using InitializerFunction = std::function<void(std::vector<float>& values, const Shape& shape, PhiloxSequence& random)>;

/// A named way to fill a parameter.
struct Initializer {
  std::string name = "zeros";
  InitializerFunction fill;
};

Initializer zeros();
Initializer ones();
Initializer constant(float value);
/// Glorot and Bengio 2010: uniform in ±√(6/(in + out)).
Initializer glorot_uniform(Fans fans);
Initializer glorot_normal(Fans fans);
/// He et al. 2015: variance 2/in.
Initializer he_uniform(Fans fans);
Initializer he_normal(Fans fans);
/// LeCun: variance 1/in.
Initializer lecun_normal(Fans fans);
/// PyTorch's default for convolution and linear weights (and their biases): uniform in ±1/√in.
Initializer fan_in_uniform(Fans fans);
/// Normal of the given deviation.
Initializer normal(float deviation);
/// The same, truncated at two deviations.
Initializer truncated_normal(float deviation);

/// An initializer as a configuration names it: one of initializer_names().
struct InitializerOptions {
  InitializerOptions(std::string its_name, std::optional<float> its_deviation = {})  // NOLINT: a name is enough
      : name(std::move(its_name)), deviation(its_deviation) {}
  InitializerOptions(const char* its_name) : name(its_name) {}  // NOLINT: the same

  std::string name;
  std::optional<float> deviation;  ///< of `normal` and `truncated_normal`, above 0; 0.05 where there is none
};
/// Throws ConfigError naming the text and the names allowed, and for a deviation of other initializers.
Initializer make_initializer(const InitializerOptions& options, Fans fans);
std::vector<std::string> initializer_names();

class ParameterArena;
class BANTAM_INTERNAL PartialGradients;
class BANTAM_INTERNAL ReplicaTree;

/// Parameters that are trained in another way than the rest. Of several groups that a name matches, the first counts.
struct ParameterGroup {
  std::string match;  ///< of full names ("stem*", "*/norm/scale"): * is any text, ? one character
  /// Their values do not move. A batch norm whose parameters are all frozen for good normalises with its running
  /// statistics in training, too, and these stay.
  bool freeze = false;
  /// With freeze: they stay until so many updates were done, and are then trained as if that were the first; their
  /// gradients and moments have memory from the beginning. 0: frozen for good, without gradients and moments, and no
  /// backward runs for them.
  std::int64_t frozen_updates = 0;
  std::optional<float> weight_decay = {};  ///< in place of the optimizer's; decay_biases counts all the same
  float learning_rate_scale = 1.0f;        ///< times the optimizer's rate

  bool is_frozen_for_good() const { return freeze && frozen_updates == 0; }
};

/// Index of the first group that matches `name`; -1 where none does.
int group_of(std::span<const ParameterGroup> groups, std::string_view name);

/// Throws ConfigError, with the nearest name, for the first group that has none of these names: because nothing
/// matches, or because groups before it have what matches; and where nothing is left to train.
void check_groups(std::span<const ParameterGroup> groups, std::span<const std::string> names);

/// A parameter as its layer declares it: name, shape, first values, and how it is trained.
struct ParameterSpec {
  std::string name;  ///< full path, "block1/conv/weight"
  Shape shape;
  Initializer initializer;
  bool keep_float32 = false;  ///< no compute copy in mixed precision (batch norm's scale and shift)
  bool decays = true;         ///< weight decay applies (biases and norms may be left out by a group)
  bool frozen = false;
};

/// One trainable tensor. Owned by its arena; addresses are stable.
class Parameter {
 public:
  const std::string& name() const { return spec_.name; }
  const ParameterSpec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  bool frozen() const { return spec_.frozen; }
  /// Index of its group in the arena's; -1: none.
  int group() const { return group_; }
  /// Offset of the first element in every slot of the arena that has it.
  std::int64_t offset() const { return offset_; }

  /// Returns the tensor for ops: the compute copy (or the master where there is none), on the tape as this parameter.
  Tensor value();
  /// The weights as they are stored: float32, or where the precision keeps no masters the compute type. keep_float32
  /// has float32 always.
  Tensor master() const;
  /// The float32 gradient, from partial sums where there are any, widened where it is narrow: for
  /// reading. After an update it is the last effective batch's, until a backward overwrites it. Undefined where it is
  /// frozen.
  Tensor gradient() const;
  /// The same, for reading and writing: what the program writes there is what the next Optimizer::update reads (times
  /// the loss scale, where the precision has one). Once a backward of the effective batch has written gradients: zeros
  /// where it did not write this one, and later micro-batches add to it. Before that, what is written counts where the
  /// update comes with no backward at all; a backward that writes this gradient overwrites it, and where one writes
  /// others only, the update throws Error, because it could be meant or left over: write after backward.
  Tensor gradient();

 private:
  friend class ParameterArena;
  friend class GradientStore;
  friend class ReplicaTree;
  /// The gradient's place as somebody who overwrites it needs it: what lies there is forgotten.
  Tensor gradient_to_overwrite();
  /// A backward, or the program after one, writes the gradient now. Returns whether there is a gradient to add to.
  bool note_written();

  ParameterArena* arena_ = nullptr;
  ParameterSpec spec_;
  int group_ = -1;
  std::int64_t offset_ = 0;
  // Whether the gradient has been written, or lent, since the effective batch began; reset when the next one begins:
  bool gradient_written_ = false;
  bool gradient_lent_ = false;  // to the program, before any was written
};

/// All parameters of a model, in reverse forward order, those that are frozen after the others, each span a multiple of
/// 128 elements (so 512-byte aligned in float32).
class ParameterArena {
 public:
  ParameterArena();
  ~ParameterArena();
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  /// Before the first `declare`: parameters of groups that are frozen for good are declared frozen.
  void set_groups(std::vector<ParameterGroup> groups) { groups_ = std::move(groups); }
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  /// Before `materialize`. Throws ConfigError where the name is taken.
  Parameter& declare(ParameterSpec spec);
  /// Lays out and allocates the slots, and writes initial values, each a pure function of (seed, name, shape).
  void materialize(const Context& context, std::uint64_t seed);
  /// The same for inference: without gradients, and without values, which are loaded next.
  void materialize_for_inference(const Context& context);
  /// After loading, for inference: masters that have a compute copy are released.
  void release_masters(const Context& context);

  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  /// Null where there is none.
  Parameter* find(std::string_view name);
  /// Sum of the parameters' elements, padding not counted.
  std::int64_t parameter_count() const;
  std::int64_t trainable_count() const;
  /// Elements of the slots of weights, padding included.
  std::int64_t slot_elements() const { return slot_elements_; }
  /// Those of gradients and moments: frozen parameters, which come last, have none.
  std::int64_t trainable_elements() const { return trainable_elements_; }

  /// Adds a float32 slot of zeros (optimizer state), of trainable_elements().
  Tensor add_slot(const Context& context, const char* name, Category category = Category::optimizer);
  /// The float32 slot of weights: of all, or where the precision keeps no masters of those that have no compute copy,
  /// which then lie side by side, from element first_master() on.
  const Tensor& master() const { return master_; }
  std::int64_t first_master() const { return first_master_; }
  /// Every gradient, with partial sums added up and narrow ones widened, for reading. To write gradients,
  /// see Parameter::gradient.
  const Tensor& gradient();
  /// The same memory as it is, and what it lacks: for the update.
  const Tensor& gradient_slot() const { return gradient_; }
  PartialGradients& partial_gradients() { return *partial_; }
  /// Undefined in float32.
  const Tensor& compute() const { return compute_; }
  DType compute_dtype() const { return compute_dtype_; }

  /// A new effective batch: the next gradient of each parameter overwrites, and what waits is dropped.
  void begin_accumulation();
  /// Parameters that got no gradient in this effective batch get zeros; where none did, those that were lent to the
  /// program (Parameter::gradient) keep what it wrote. Throws Error, with nothing changed, where it cannot be told.
  void end_accumulation(const Context& context);
  /// Rewrites the compute slot from the master (after loading weights).
  void refresh_compute(const Context& context);
  /// Index of the span that holds each weight block of 128 trainable elements, in slot order, with the parameters'
  /// order of `spans()`.
  const std::vector<std::int32_t>& span_of_weight_block() const { return span_of_weight_block_; }
  /// Parameters that are not frozen, in slot order (reverse forward order).
  const std::vector<Parameter*>& spans() const { return spans_; }

 private:
  friend class Parameter;
  friend class ReplicaTree;  // which exchanges the gradients' memory
  std::deque<Parameter> parameters_;
  void lay_out(Parameter& parameter);
  void allocate_weights(const Context& context);

  std::vector<ParameterGroup> groups_;
  std::vector<Parameter*> spans_;
  std::vector<std::int32_t> span_of_weight_block_;
  std::int64_t slot_elements_ = 0, trainable_elements_ = 0, first_master_ = 0;
  bool keeps_masters_ = true;
  DType compute_dtype_ = DType::float32;
  Tensor master_, gradient_, compute_;
  Stream stream_;
  bool any_written_ = false;  // in the effective batch under way
  std::unique_ptr<PartialGradients> partial_;
};

/// A float32 state tensor that is not trained: running statistics.
struct Buffer {
  std::string name;
  Shape shape;
  float initial = 0.0f;
  std::int64_t offset = 0;
};

/// All buffers of a model: the current values, and the next ones, which forward moves and an update makes current.
class BufferArena {
 public:
  BufferArena() = default;
  BufferArena(const BufferArena&) = delete;
  BufferArena& operator=(const BufferArena&) = delete;

  Buffer& declare(std::string name, Shape shape, float initial);
  /// Null where there is none.
  const Buffer* find(std::string_view name) const;
  void materialize(const Context& context);
  /// The same for inference: there are no next values.
  void materialize_for_inference(const Context& context);
  std::deque<Buffer>& all() { return buffers_; }
  const std::deque<Buffer>& all() const { return buffers_; }
  std::int64_t elements() const { return elements_; }
  const Tensor& current() const { return current_; }
  const Tensor& next() const { return next_; }
  Tensor current(const Buffer& buffer) const;
  /// Undefined in inference.
  Tensor next(const Buffer& buffer) const;
  /// next = current (after loading).
  void reset_next(const Context& context);
  /// Whether the values that training begins with are another training's: running statistics then have no warm-up.
  bool settled() const { return settled_; }
  void set_settled(bool settled) { settled_ = settled; }

 private:
  friend class ReplicaTree;  // which exchanges the next values' memory
  std::deque<Buffer> buffers_;
  std::int64_t elements_ = 0;
  Tensor current_, next_;
  bool settled_ = false;
};

/// One named piece of state: a tensor on the device. A model's are "weights/<parameter>" and "buffers/<buffer>"
/// ("weights/dense/weight", "buffers/norm/running_mean"); an optimizer's "optimizer/control" and, for each moment it
/// keeps and each parameter, "optimizer/moment1/<parameter>" and so on.
struct StateEntry {
  std::string name;
  Tensor tensor;
};

/// Entries in a fixed order; names are unique.
class StateRegistry {
 public:
  void add(std::string name, Tensor tensor);
  /// Host values, kept by their owner, read at save and written at load: a training run's "trainer/epoch",
  /// "trainer/update" and so on.
  void add_counter(std::string name, std::function<std::int64_t()> get, std::function<void(std::int64_t)> set);
  /// The same for a list of float64 numbers, whose length may change: the sums of an epoch under way.
  void add_numbers(std::string name, std::function<std::vector<double>()> get,
                   std::function<void(const std::vector<double>&)> set);
  /// Called after a load, so that owners rebuild what derives from state (compute copies).
  void on_load(std::function<void()> function) { on_load_.push_back(std::move(function)); }

  const std::vector<StateEntry>& tensors() const { return tensors_; }
  /// A number of the host, by name: how it is read, and restored.
  struct Counter {
    std::string name;
    std::function<std::int64_t()> get;
    std::function<void(std::int64_t)> set;
  };
  const std::vector<Counter>& counters() const { return counters_; }
  /// A list of numbers of the host, by name: how it is read, and restored.
  struct Numbers {
    std::string name;
    std::function<std::vector<double>()> get;
    std::function<void(const std::vector<double>&)> set;
  };
  const std::vector<Numbers>& numbers() const { return numbers_; }
  /// Whether an entry of any kind has this name.
  bool contains(const std::string& name) const { return names_.contains(name); }
  void loaded() const {
    for (const auto& function : on_load_) function();
  }

 private:
  void require_new(const std::string& name);

  std::unordered_set<std::string> names_;
  std::vector<StateEntry> tensors_;
  std::vector<Counter> counters_;
  std::vector<Numbers> numbers_;
  std::vector<std::function<void()>> on_load_;
};

}  // namespace bantam
BANTAM_API_END
