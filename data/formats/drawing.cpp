// One image: a cluttered background, a shape or a texture of the class, an occluder, and noise on every pixel.
#include "bantam/data/formats/drawing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "bantam/base/philox.h"

namespace bantam {
namespace {

// Coordinates: the image is [-1, 1] by [-1, 1], y down.
constexpr float kPixel = 2.0f / static_cast<float>(kGeneratedExtent);
constexpr float kPi = std::numbers::pi_v<float>;

// How hard the set is. With these the quickstart network (batch 32, Adam at 1e-3) gets 88 to 93 % of validation images
// right after one epoch over 40,000 images, by the luck of its start, and about 95 % after a few.
constexpr float kLeastContrast = 0.35f;  // between figure and background, root mean square over the colour channels
constexpr float kMostNoise = 0.07f;      // standard deviation of pixel noise
constexpr float kMostOffset = 0.15f;     // of the figure's centre from the image's
constexpr float kMostTurn = 0.3f;        // radians; horizontal stripes must stay clear of vertical ones
constexpr float kOccluded = 0.25f;       // share of images with an occluder over the figure

struct Colour {
  float c[3];
};

struct Point {
  float x, y;
};

Point rotate(Point p, float cosine, float sine) { return {cosine * p.x + sine * p.y, cosine * p.y - sine * p.x}; }

// Signed distances: negative inside. Each figure fits the unit disc about.
float disc(Point p) { return std::hypot(p.x, p.y) - 0.9f; }
float ring(Point p) { return std::abs(std::hypot(p.x, p.y) - 0.72f) - 0.19f; }
float square(Point p) { return std::max(std::abs(p.x), std::abs(p.y)) - 0.76f; }
float triangle(Point p) { return std::max(std::abs(p.x) * 0.866f + p.y * 0.5f, -p.y) - 0.5f; }
float cross(Point p) {
  const float x = std::abs(p.x), y = std::abs(p.y);
  return std::min(std::max(x - 0.25f, y - 0.95f), std::max(x - 0.95f, y - 0.25f));
}

/// A star of five points: the angle is folded onto half a point, whose edge is a straight line.
float star(Point p) {
  const float step = 2.0f * kPi / 5.0f;
  const float angle = std::atan2(p.y, p.x);
  const float folded = std::abs(angle - step * std::round(angle / step));
  const float radius = std::hypot(p.x, p.y);
  const Point tip = {1.05f, 0.0f};
  const Point notch = {0.42f * std::cos(step / 2.0f), 0.42f * std::sin(step / 2.0f)};
  const Point q = {radius * std::cos(folded), radius * std::sin(folded)};
  const Point edge = {notch.x - tip.x, notch.y - tip.y};
  return ((q.x - tip.x) * -edge.y + (q.y - tip.y) * edge.x) / -std::hypot(edge.x, edge.y);
}

// Textures: distances in the same sense, of a pattern of period `t`, cut to a window.
float stripes(float along, float t) { return -std::sin(2.0f * kPi * along / t) * t / (2.0f * kPi); }
float checkerboard(Point p, float t) { return -std::sin(kPi * p.x / t) * std::sin(kPi * p.y / t) * t / kPi; }
float dots(Point p, float t) {
  const float x = p.x - t * std::round(p.x / t), y = p.y - t * std::round(p.y / t);
  return std::hypot(x, y) - 0.27f * t;
}

/// The figure of one image: its class and everything that varies within the class.
struct Figure {
  std::int32_t label = 0;
  Point centre{};
  float size = 0.5f;
  float aspect = 1.0f;
  float cosine = 1.0f, sine = 0.0f;
  float period = 0.4f;
  Point phase{};
  bool round_window = false;

  bool is_texture() const { return label >= 6; }

  /// Whether the point lies inside: of a texture, inside its window.
  bool covers(Point p) const {
    if (!is_texture()) return distance(p) < 0;
    return window(rotate({p.x - centre.x, p.y - centre.y}, cosine, sine)) < 0;
  }

  float distance(Point p) const {
    p = rotate({p.x - centre.x, p.y - centre.y}, cosine, sine);
    if (is_texture()) return std::max(pattern({p.x + phase.x, p.y + phase.y}), window(p));
    const Point u = {p.x / (size * aspect), p.y * aspect / size};
    return outline(u) * size;
  }

 private:
  float outline(Point u) const {
    switch (label) {
      case 0:
        return disc(u);
      case 1:
        return ring(u);
      case 2:
        return square(u);
      case 3:
        return triangle(u);
      case 4:
        return cross(u);
      default:
        return star(u);
    }
  }
  float pattern(Point p) const {
    switch (label) {
      case 6:
        return stripes(p.y, period);
      case 7:
        return stripes(p.x, period);
      case 8:
        return checkerboard(p, period * 0.65f);
      default:
        return dots(p, period * 0.95f);
    }
  }
  float window(Point p) const {
    return round_window ? std::hypot(p.x, p.y) - size : std::max(std::abs(p.x), std::abs(p.y)) - size * 0.9f;
  }
};

Figure draw_figure(PhiloxSequence& random, std::int32_t label) {
  Figure f;
  f.label = label;
  f.centre = {random.uniform(-kMostOffset, kMostOffset), random.uniform(-kMostOffset, kMostOffset)};
  f.size = f.is_texture() ? random.uniform(0.6f, 0.95f) : random.uniform(0.50f, 0.80f);
  f.aspect = random.uniform(0.92f, 1.08f);
  const float angle = random.uniform(-kMostTurn, kMostTurn);
  f.cosine = std::cos(angle);
  f.sine = std::sin(angle);
  f.period = random.uniform(0.34f, 0.56f);
  f.phase = {random.uniform(), random.uniform()};
  f.round_window = random.next() % 2 == 0;
  return f;
}

Colour draw_colour(PhiloxSequence& random) { return {{random.uniform(), random.uniform(), random.uniform()}}; }

/// A colour that stands out from `other` by the least contrast.
Colour draw_contrasting(PhiloxSequence& random, const Colour& other) {
  for (;;) {
    const Colour colour = draw_colour(random);
    float squares = 0.0f;
    for (int c = 0; c < 3; ++c) squares += (colour.c[c] - other.c[c]) * (colour.c[c] - other.c[c]);
    if (squares >= 3.0f * kLeastContrast * kLeastContrast) return colour;
  }
}

/// Smooth random colour: a base, and values on a coarse lattice between which pixels interpolate.
class Background {
 public:
  Background(PhiloxSequence& random, const Colour& base) : base_(base), amplitude_(random.uniform(0.0f, 0.28f)) {
    for (float& v : lattice_) v = random.uniform(-1.0f, 1.0f);
  }
  float at(Point p, int c) const {
    const float x = (p.x + 1.0f) * 0.5f * (kCells - 1), y = (p.y + 1.0f) * 0.5f * (kCells - 1);
    const int i = std::min(static_cast<int>(y), kCells - 2), j = std::min(static_cast<int>(x), kCells - 2);
    const float fx = x - static_cast<float>(j), fy = y - static_cast<float>(i);
    const float top = node(i, j, c) * (1.0f - fx) + node(i, j + 1, c) * fx;
    const float bottom = node(i + 1, j, c) * (1.0f - fx) + node(i + 1, j + 1, c) * fx;
    return base_.c[c] + amplitude_ * (top * (1.0f - fy) + bottom * fy);
  }

 private:
  static constexpr int kCells = 6;
  float node(int i, int j, int c) const { return lattice_[static_cast<std::size_t>((i * kCells + j) * 3 + c)]; }
  Colour base_;
  float amplitude_;
  std::array<float, kCells * kCells * 3> lattice_{};
};

/// A small bar or disc without meaning: drawn before the figure it is clutter, drawn after it an occluder.
struct Speck {
  Point centre{};
  float length = 0.0f, width = 0.0f;
  float cosine = 1.0f, sine = 0.0f;
  Colour colour{};
  bool round = false;

  float distance(Point p) const {
    p = rotate({p.x - centre.x, p.y - centre.y}, cosine, sine);
    if (round) return std::hypot(p.x, p.y) - width;
    return std::max(std::abs(p.x) - length, std::abs(p.y) - width);
  }
};

Speck draw_speck(PhiloxSequence& random, float reach) {
  Speck s;
  s.centre = {random.uniform(-reach, reach), random.uniform(-reach, reach)};
  s.length = random.uniform(0.15f, 0.6f);
  s.width = random.uniform(0.05f, 0.16f);
  const float angle = random.uniform(0.0f, kPi);
  s.cosine = std::cos(angle);
  s.sine = std::sin(angle);
  s.colour = draw_colour(random);
  s.round = random.next() % 2 == 0;
  return s;
}

/// Share of a pixel that lies inside, from the distance of its centre: edges are one pixel soft.
float coverage(float distance) { return std::clamp(0.5f - distance / kPixel, 0.0f, 1.0f); }

void blend(Colour& pixel, const Colour& over, float share) {
  for (int c = 0; c < 3; ++c) pixel.c[c] += (over.c[c] - pixel.c[c]) * share;
}

/// All that one image shows.
struct Scene {
  Colour base;
  Colour ink;
  Background background;
  std::array<Speck, 2> clutter;
  Figure figure;
  Speck occluder;
  bool occluded;
  float noise;

  Scene(PhiloxSequence& random, std::int32_t label)
      : base(draw_colour(random)),
        ink(draw_contrasting(random, base)),
        background(random, base),
        clutter{draw_speck(random, 1.0f), draw_speck(random, 1.0f)},
        figure(draw_figure(random, label)),
        occluder(draw_speck(random, 0.5f)),
        occluded(random.uniform() < kOccluded),
        noise(random.uniform(0.02f, kMostNoise)) {}

  Colour at(Point p) const {
    Colour pixel = {{background.at(p, 0), background.at(p, 1), background.at(p, 2)}};
    for (const Speck& speck : clutter) blend(pixel, speck.colour, coverage(speck.distance(p)));
    blend(pixel, ink, coverage(figure.distance(p)));
    if (occluded) blend(pixel, occluder.colour, coverage(occluder.distance(p)));
    return pixel;
  }
};

/// Noise of standard deviation 1: four uniform bytes of one random word, summed (near enough to a bell).
float noise_of(std::uint32_t word) {
  const auto sum = static_cast<float>((word & 255u) + ((word >> 8) & 255u) + ((word >> 16) & 255u) + (word >> 24));
  return (sum - 510.0f) * (1.0f / 147.8f);  // a byte's standard deviation is 73.9; four add to twice that
}

/// The numbers of one image: an image draws far fewer than 2^16 blocks of random words, so images never share any.
PhiloxSequence sequence_of(std::uint64_t seed, GeneratedSplit split, std::int64_t index) {
  const PhiloxKey key = philox_key(seed, RandomPurpose::dataset, static_cast<std::uint64_t>(split));
  return PhiloxSequence(key, static_cast<std::uint64_t>(index) << 16);
}

Point centre_of_pixel(std::int64_t i, std::int64_t j) {
  return {(static_cast<float>(j) + 0.5f) * kPixel - 1.0f, (static_cast<float>(i) + 0.5f) * kPixel - 1.0f};
}

}  // namespace

void draw_generated_image(std::uint64_t seed, GeneratedSplit split, std::int64_t index,
                          std::span<std::uint8_t, kGeneratedBytes> rgb) {
  PhiloxSequence random = sequence_of(seed, split, index);
  const Scene scene(random, generated_label(index));
  std::size_t at = 0;
  for (std::int64_t i = 0; i < kGeneratedExtent; ++i) {
    for (std::int64_t j = 0; j < kGeneratedExtent; ++j) {
      const Colour pixel = scene.at(centre_of_pixel(i, j));
      for (int c = 0; c < 3; ++c) {
        const float value = pixel.c[c] + scene.noise * noise_of(random.next());
        rgb[at++] = static_cast<std::uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255.0f + 0.5f);
      }
    }
  }
}

void draw_generated_pixels(std::uint64_t seed, GeneratedSplit split, std::int64_t index,
                           std::span<std::int32_t, kGeneratedPixels> labels) {
  PhiloxSequence random = sequence_of(seed, split, index);
  const Scene scene(random, generated_label(index));
  std::size_t at = 0;
  for (std::int64_t i = 0; i < kGeneratedExtent; ++i) {
    for (std::int64_t j = 0; j < kGeneratedExtent; ++j) {
      const Point p = centre_of_pixel(i, j);
      const bool hidden = scene.occluded && scene.occluder.distance(p) < 0;
      labels[at++] = !hidden && scene.figure.covers(p) ? scene.figure.label + 1 : 0;
    }
  }
}

std::array<float, 3> generated_place(std::uint64_t seed, GeneratedSplit split, std::int64_t index) {
  PhiloxSequence random = sequence_of(seed, split, index);
  const Scene scene(random, generated_label(index));
  return {scene.figure.centre.x, scene.figure.centre.y, scene.figure.size};
}

}  // namespace bantam
