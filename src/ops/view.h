#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace tandem::ops {

// A tensor that somebody else owns: address, shape and strides in elements. The memory may be a
// device's; only that device's operators dereference it. The last axis is dense (stride 1).
template <class T, int Rank>
struct View {
  T* data = nullptr;
  std::array<std::int64_t, Rank> shape{};
  std::array<std::int64_t, Rank> stride{};

  [[nodiscard]] std::int64_t size(int axis) const { return shape[axis]; }
  [[nodiscard]] T* row(std::int64_t i) const { return data + i * stride[0]; }
  [[nodiscard]] T* row(std::int64_t i, std::int64_t j) const
    requires(Rank >= 2)
  {
    return data + i * stride[0] + j * stride[1];
  }
  operator View<const T, Rank>() const
    requires(!std::is_const_v<T>)
  {
    return {data, shape, stride};
  }
};

// Row-major, no gaps.
template <class T>
View<T, 1> dense(T* data, std::int64_t n0) {
  return {data, {n0}, {1}};
}
template <class T>
View<T, 2> dense(T* data, std::int64_t n0, std::int64_t n1) {
  return {data, {n0, n1}, {n1, 1}};
}
template <class T>
View<T, 3> dense(T* data, std::int64_t n0, std::int64_t n1, std::int64_t n2) {
  return {data, {n0, n1, n2}, {n1 * n2, n2, 1}};
}

// Columns [begin, begin + count) of a matrix.
template <class T>
View<T, 2> columns(View<T, 2> matrix, std::int64_t begin, std::int64_t count) {
  return {matrix.data + begin, {matrix.shape[0], count}, {matrix.stride[0], 1}};
}

// The first `count` rows of a matrix.
template <class T>
View<T, 2> first_rows(View<T, 2> matrix, std::int64_t count) {
  return {matrix.data, {count, matrix.shape[1]}, matrix.stride};
}

}  // namespace tandem::ops
