// One stream of an exported model: raw inputs of each step from standard input, raw outputs to standard output.
#include <onnxruntime_cxx_api.h>

#include <cstdio>
#include <cstring>
#include <vector>

struct Tensor {
  const char* name;
  ONNXTensorElementDataType type;
  std::vector<int64_t> shape;  // one row
  std::vector<char> bytes;
};

template <typename T>
std::vector<char> filled(size_t count, T value) {
  std::vector<T> numbers(count, value);
  return std::vector<char>((char*)numbers.data(), (char*)(numbers.data() + count));
}

template <typename T>
std::vector<char> copied(std::vector<T> numbers) {
  return std::vector<char>((char*)numbers.data(), (char*)(numbers.data() + numbers.size()));
}

std::vector<Tensor> inputs = {
$inputs
};
std::vector<Tensor> state = {
$state
};
std::vector<const char*> outputs = {$outputs};

int main(int argc, char** argv) {
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR);
  Ort::Session session(env, argc > 1 ? argv[1] : "model.onnx", Ort::SessionOptions());
  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  while (true) {
    for (auto& one : inputs)
      if (fread(one.bytes.data(), 1, one.bytes.size(), stdin) != one.bytes.size()) return 0;
    std::vector<Ort::Value> values;
    std::vector<const char*> names;
    for (auto* group : {&inputs, &state})
      for (auto& one : *group) {
        names.push_back(one.name);
        values.push_back(Ort::Value::CreateTensor(memory, one.bytes.data(), one.bytes.size(), one.shape.data(),
                                                  one.shape.size(), one.type));
      }
    auto found = session.Run(Ort::RunOptions(), names.data(), values.data(), values.size(), outputs.data(),
                             outputs.size());
    size_t own = outputs.size() - state.size();  // the state comes last
    for (size_t i = 0; i < own; i++)
      fwrite(found[i].GetTensorRawData(), 1, found[i].GetTensorSizeInBytes(), stdout);
    for (size_t i = 0; i < state.size(); i++)
      memcpy(state[i].bytes.data(), found[own + i].GetTensorRawData(), state[i].bytes.size());
  }
}
