// A terminal program that learns from what its user draws, live: arrow keys move a pen over a small canvas, a digit
// says what the drawing is, and a network learns it while the user goes on drawing. Everything stays under 64 MiB.
//
// Keys are read from standard input. Where that is no terminal (`draw_demo < keys`), each digit is followed by a fixed
// number of updates and a line of text, so that a script's output can be compared.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

constexpr std::int64_t kSide = 12, kClasses = 10, kBatch = 16;
constexpr std::uint64_t kMostBytes = 64u << 20;
using Canvas = std::array<float, kSide * kSide>;  // 1 where the pen was

/// The network, and every drawing that was named so far.
class Learner {
 public:
  Learner()
      : runtime_({.threads = 1, .limits = {{"cpu", kMostBytes / 4}}}),
        model_(runtime_, Device::cpu(), network(), {.seed = 1}),
        optimizer_(model_, {.rule = adam({.learning_rate = 3e-3f})}),
        step_(model_, optimizer_, {}) {
    step_.prepare({.batches = {kBatch}});
  }
  void add(const Canvas& drawing, int name) { drawings_.push_back({drawing, name}); }

  /// One update on drawings chosen at random, each moved by up to a pixel.
  double learn() {
    std::vector<float> pixels(kBatch * kSide * kSide);
    std::vector<std::int32_t> labels(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) {
      const Named& chosen = drawings_[random_.below(static_cast<std::uint32_t>(drawings_.size()))];
      move(chosen.drawing, static_cast<int>(random_.below(3)) - 1, static_cast<int>(random_.below(3)) - 1,
           &pixels[i * kSide * kSide]);
      labels[i] = chosen.name;
    }
    const Context context = model_.context(Pass::train);
    step_.step({.tensors = {{kImages, context.upload({kBatch, kSide, kSide, 1}, pixels.data())},
                            {kLabels, context.upload({kBatch}, labels.data())}},
                .size = kBatch});
    return loss_ = step_.read_metrics().back().loss;
  }

  struct Guess {
    int name = 0;
    float probability = 0;
  };
  Guess guess(const Canvas& drawing) {
    const Context context = model_.context(Pass::evaluate);
    const Tensor logits = model_.forward(context, context.upload({1, kSide, kSide, 1}, drawing.data()));
    const std::vector<float> p = to_host_floats(ops::softmax(context, logits), context.stream);
    const auto best = std::max_element(p.begin(), p.end());
    return {static_cast<int>(best - p.begin()), *best};
  }
  std::size_t drawings() const { return drawings_.size(); }
  double loss() const { return loss_; }
  std::uint64_t pool_bytes() { return runtime_.allocator(Device::cpu()).stats().peak_pool_bytes; }
  std::uint64_t process_bytes() { return runtime_.process_memory(Device::cpu()).peak_bytes; }

 private:
  struct Named {
    Canvas drawing;
    int name;
  };
  static Graph network() {
    Graph graph({kSide, kSide, 1});
    graph.add(conv2d({.filters = 8, .padding = Padding::same(), .activation = {Activation::relu}}));
    graph.add(max_pool());
    graph.add(flatten());
    graph.add(dense({.units = 32, .activation = {Activation::relu}}));
    graph.add(dense({.units = kClasses}));
    return graph;
  }
  static void move(const Canvas& from, int down, int right, float* to) {
    for (int row = 0; row < kSide; ++row)
      for (int column = 0; column < kSide; ++column) {
        const int y = row - down, x = column - right;
        const bool inside = y >= 0 && y < kSide && x >= 0 && x < kSide;
        to[row * kSide + column] = inside ? from[static_cast<std::size_t>(y * kSide + x)] : 0.0f;
      }
  }

  Runtime runtime_;
  Model model_;
  Optimizer optimizer_;
  TrainingStep step_;
  std::vector<Named> drawings_;
  PhiloxSequence random_{philox_key(1, RandomPurpose::dataset)};
  double loss_ = 0;
};

/// The terminal without echo and line buffering, for as long as this object lives; nothing where input is a file.
class RawTerminal {
 public:
  RawTerminal() : live_(isatty(STDIN_FILENO) != 0) {
    if (!live_) return;
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    std::printf("\033[2J\033[?25l");
  }
  ~RawTerminal() {
    if (!live_) return;
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    std::printf("\033[?25h\n");
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  bool live() const { return live_; }

 private:
  bool live_;
  termios before_{};
};

/// The next key: a character, or 'k', 'j', 'l', 'h' for the arrows up, down, right, left; -1 at the end of the input;
/// none where no key came within `milliseconds`.
std::optional<int> next_key(int milliseconds) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, milliseconds) <= 0) return std::nullopt;
  char bytes[3];
  if (read(STDIN_FILENO, bytes, 1) != 1) return -1;
  if (bytes[0] != '\033') return bytes[0];
  if (read(STDIN_FILENO, bytes + 1, 2) != 2) return -1;
  return bytes[2] >= 'A' && bytes[2] <= 'D' ? "kjlh"[bytes[2] - 'A'] : 0;
}

/// Where the pen is, whether it draws, and what it has drawn.
struct Pen {
  int row = 0, column = 0;
  bool draws = true;
  Canvas canvas{};

  /// Returns whether the key was the pen's.
  bool follow(int key) {
    const int last = static_cast<int>(kSide) - 1;
    switch (key) {
      case 'k':
        row = std::max(row - 1, 0);
        break;
      case 'j':
        row = std::min(row + 1, last);
        break;
      case 'h':
        column = std::max(column - 1, 0);
        break;
      case 'l':
        column = std::min(column + 1, last);
        break;
      case ' ':
        draws = !draws;
        break;
      case 'c':
        *this = Pen{};
        return true;
      default:
        return false;
    }
    if (draws) canvas[static_cast<std::size_t>(row * kSide + column)] = 1;
    return true;
  }
};

void show(const Pen& pen, Learner& learner) {
  std::string screen = "\033[H";
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      const bool here = row == pen.row && column == pen.column;
      const bool ink = pen.canvas[static_cast<std::size_t>(row * kSide + column)] > 0;
      screen += here ? (pen.draws ? "\033[7m++\033[0m" : "\033[7m..\033[0m") : ink ? "\033[7m  \033[0m" : " .";
    }
    screen += "\n";
  }
  std::printf("%sarrows: move   space: pen up, down   0-9: this is a …   ?: what is it   c: clear   q: quit\n",
              screen.c_str());
  if (learner.drawings() > 0) {
    const Learner::Guess guess = learner.guess(pen.canvas);
    std::printf("%3zu drawings, loss %.3f, this looks like a %d (%2.0f %%)  \n", learner.drawings(), learner.loss(),
                guess.name, 100 * guess.probability);
  }
  std::fflush(stdout);
}

/// A digit names the drawing, which is learned from then on; a question mark asks.
void answer(int key, Pen& pen, Learner& learner, bool live) {
  if (key >= '0' && key <= '9') {
    learner.add(pen.canvas, key - '0');
    pen = Pen{};
    if (live) return;  // learns between two keys
    for (int i = 0; i < 60; ++i) learner.learn();
    std::printf("learned a %c: %zu drawings, loss %.3f\n", key, learner.drawings(), learner.loss());
  } else if (key == '?' && learner.drawings() > 0 && !live) {
    const Learner::Guess guess = learner.guess(pen.canvas);
    std::printf("this looks like a %d (%.0f %%)\n", guess.name, 100 * guess.probability);
  }
}

}  // namespace

int main() {
  try {
    const RawTerminal terminal;
    Learner learner;
    Pen pen;
    for (;;) {
      if (terminal.live()) show(pen, learner);
      const std::optional<int> key = next_key(terminal.live() ? 20 : -1);
      if (key == 'q' || key == -1) break;
      if (!key && learner.drawings() > 0) learner.learn();  // the user thinks: an update or two
      if (key && !pen.follow(*key)) answer(*key, pen, learner, terminal.live());
    }
    const std::uint64_t process = learner.process_bytes();
    std::printf("memory: pool %.1f MiB, process %.1f MiB at the peak\n",
                static_cast<double>(learner.pool_bytes()) / (1 << 20), static_cast<double>(process) / (1 << 20));
    return process <= kMostBytes ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
