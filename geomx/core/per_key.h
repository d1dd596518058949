// Something for each key of a room. Keys are small numbers in this run, so this is an array; addresses stay.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace geomx {

template <typename T>
class PerKey {
 public:
  T& operator[](uint32_t key) {
    if (key >= items_.size()) items_.resize(key + 1);
    if (!items_[key]) items_[key] = std::make_unique<T>();
    return *items_[key];
  }
  T* find(uint32_t key) const { return key < items_.size() ? items_[key].get() : nullptr; }
  // visit(key, item), for those that are there; items may be added meanwhile.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (uint32_t key = 0; key < items_.size(); ++key)
      if (items_[key]) visit(key, *items_[key]);
  }

 private:
  std::vector<std::unique_ptr<T>> items_;
};

}  // namespace geomx
