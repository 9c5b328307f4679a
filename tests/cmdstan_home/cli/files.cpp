#include "files.hpp"

#include <stan/io/empty_var_context.hpp>
#include <stan/io/json/json_data.hpp>
#include <stan/version.hpp>

#include <cstdlib>
#include <ctime>
#include <iomanip>
#include <limits>
#include <map>
#include <sstream>

namespace cmdstan_home {

namespace {

std::size_t suffix_at(const std::string& path) {
  const auto slash = path.find_last_of('/');
  const auto dot = path.find_last_of('.');
  const bool none = dot == std::string::npos
                    || (slash != std::string::npos && dot < slash);
  return none ? path.size() : dot;
}

bool readable(const std::string& path) {
  return std::ifstream(path).good();
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream cells(line);
  for (std::string cell; std::getline(cells, cell, ',');)
    out.push_back(cell);
  return out;
}

std::unique_ptr<std::ofstream> open_output(const std::string& path,
                                           const argument& arguments) {
  auto out = std::make_unique<std::ofstream>(path);
  if (!*out)
    throw file_error("cannot write to output file '" + path + "'");
  const auto digits = arguments["output.sig_figs"].as_integer();
  if (digits > 0)
    *out << std::setprecision(static_cast<int>(digits));
  return out;
}

void write_arguments(const argument& node, json_writer& out) {
  switch (node.type()) {
    case argument::kind::group:
      out.begin_record(node.name());
      for (const auto& member : node.children())
        write_arguments(member, out);
      out.end_record();
      break;
    case argument::kind::choice:
      out.begin_record(node.name());
      out.write("value", node.as_text());
      if (!node.chosen().children().empty())
        write_arguments(node.chosen(), out);
      out.end_record();
      break;
    case argument::kind::flag:
      out.write(node.name(), node.as_flag());
      break;
    case argument::kind::integer:
      out.write(node.name(), node.as_integer());
      break;
    case argument::kind::real:
      out.write(node.name(), node.as_real());
      break;
    case argument::kind::text:
      out.write(node.name(), node.as_text());
      break;
  }
}

/** `name = value` pairs that head every output file. */
std::vector<std::pair<std::string, std::string>> facts(
    const stan::model::model_base& model) {
  char when[64] = "";
  const std::time_t now = std::time(nullptr);
  std::strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", std::gmtime(&now));
  return {{"stan_version_major", stan::MAJOR_VERSION},
          {"stan_version_minor", stan::MINOR_VERSION},
          {"stan_version_patch", stan::PATCH_VERSION},
          {"model", model.model_name()},
          {"start_datetime", when}};
}

}  // namespace

std::string tagged(const std::string& path, const std::string& tag) {
  return tagged(path, tag, path.substr(suffix_at(path)));
}

std::string tagged(const std::string& path, const std::string& tag,
                   const std::string& suffix) {
  return path.substr(0, suffix_at(path)) + tag + suffix;
}

context read_values(const std::string& path) {
  if (path.empty())
    return std::make_shared<stan::io::empty_var_context>();
  if (path.substr(suffix_at(path)) != ".json")
    throw file_error("cannot read file '" + path
                     + "': only JSON is read here, by the suffix .json");
  std::ifstream in(path);
  if (!in)
    throw file_error("cannot read file '" + path + "'");
  try {
    return std::make_shared<stan::json::json_data>(in);
  } catch (const std::exception& e) {
    throw file_error("file '" + path + "': " + e.what());
  }
}

std::vector<context> read_values(const std::string& path, int count,
                                 int first) {
  std::vector<context> out;
  const auto list = split(path);
  if (list.size() > 1 && !readable(path)) {
    if (list.size() != static_cast<std::size_t>(count))
      throw usage_error("'" + path + "' names " + std::to_string(list.size())
                        + " files for " + std::to_string(count) + " chains");
    for (const auto& one : list)
      out.push_back(read_values(one));
    return out;
  }
  const auto sibling = [&](int i) {
    return tagged(path, "_" + std::to_string(first + i));
  };
  const bool numbered = !path.empty() && readable(sibling(0))
                        && (count > 1 || !readable(path));
  if (!numbered)
    return std::vector<context>(count, read_values(path));
  for (int i = 0; i < count; ++i)
    out.push_back(read_values(sibling(i)));
  return out;
}

Eigen::MatrixXd read_draws(const std::string& path,
                           const stan::model::model_base& model) {
  std::ifstream in(path);
  if (!in)
    throw file_error("cannot read file '" + path + "'");
  std::vector<std::string> names;
  model.constrained_param_names(names, false, false);
  std::vector<std::size_t> columns;
  std::vector<double> values;
  std::size_t width = 0, rows = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#')
      continue;
    const auto cells = split(line);
    if (width == 0) {
      width = cells.size();
      std::map<std::string, std::size_t> at;
      for (std::size_t j = 0; j < width; ++j)
        at[cells[j]] = j;
      for (const auto& name : names) {
        if (at.count(name) == 0)
          throw file_error("file '" + path + "' has no column for parameter '"
                           + name + "'");
        columns.push_back(at[name]);
      }
      continue;
    }
    if (cells.size() != width)
      throw file_error("file '" + path + "': draw " + std::to_string(rows + 1)
                       + " has " + std::to_string(cells.size())
                       + " values, expected " + std::to_string(width));
    for (const auto j : columns) {
      char* end = nullptr;
      values.push_back(std::strtod(cells[j].c_str(), &end));
      if (end == cells[j].c_str())
        throw file_error("file '" + path + "': '" + cells[j]
                         + "' is not a number");
    }
    ++rows;
  }
  if (rows == 0)
    throw file_error("file '" + path + "' holds no draws");
  using by_row = Eigen::Matrix<double, -1, -1, Eigen::RowMajor>;
  return Eigen::Map<by_row>(values.data(), rows, columns.size());
}

std::vector<std::string> preamble(const argument& arguments,
                                  const stan::model::model_base& model) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : facts(model))
    lines.push_back(name + " = " + value);
  for (const auto& line : describe(arguments))
    lines.push_back(line);
  for (const auto& line : model.model_compile_info())
    lines.push_back(line);
  return lines;
}

csv_writer open_csv(const std::string& path, const argument& arguments,
                    const std::vector<std::string>& lines) {
  if (path.empty())
    return csv_writer(nullptr, "# ");
  csv_writer writer(open_output(path, arguments), "# ");
  for (const auto& line : lines)
    writer(line);
  return writer;
}

json_writer open_json(const std::string& path, const argument& arguments) {
  return json_writer(open_output(path, arguments));
}

void write_config(const argument& arguments,
                  const stan::model::model_base& model) {
  json_writer out = open_json(
      tagged(arguments["output.file"].as_text(), "_config", ".json"),
      arguments);
  out.begin_record();
  for (const auto& [name, value] : facts(model))
    out.write(name, value);
  for (const auto& child : arguments.children())
    write_arguments(child, out);
  out.end_record();
}

void write_profile(const std::string& path,
                   const stan::math::profile_map& profiles) {
  if (profiles.empty())
    return;
  std::ofstream out(path);
  if (!out)
    throw file_error("cannot write to profile_file '" + path + "'");
  out << "name,thread_id,total_time,forward_time,reverse_time,chain_stack,"
         "no_chain_stack,autodiff_calls,no_autodiff_calls\n";
  for (const auto& [key, info] : profiles)
    out << key.first << ',' << key.second << ','
        << info.get_fwd_time() + info.get_rev_time() << ','
        << info.get_fwd_time() << ',' << info.get_rev_time() << ','
        << info.get_chain_stack_used() << ',' << info.get_nochain_stack_used()
        << ',' << info.get_num_AD_fwd_passes() << ','
        << info.get_num_no_AD_fwd_passes() << '\n';
}

}  // namespace cmdstan_home
