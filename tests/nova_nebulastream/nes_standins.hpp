// Stand-ins of the few engine types that NovaOperatorPlacer uses. Each names the header of the engine (revision 2e2cb0d0e1) whose
// declaration it stands for; with NOVA_NES_BUILD the hook is compiled against these headers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace NES
{
// Identifiers/Identifiers.hpp: Host
struct Host
{
    std::string name;
    explicit Host(std::string name) : name(std::move(name)) { }
    bool operator==(const Host&) const = default;
    auto operator<=>(const Host&) const = default;
    friend std::ostream& operator<<(std::ostream& out, const Host& host) { return out << host.name; }
};
// Identifiers/Identifiers.hpp: OperatorId
using OperatorId = uint64_t;
// Util/Pointers.hpp: SharedPtr
template <class T>
using SharedPtr = std::shared_ptr<T>;
}

template <>
struct std::hash<NES::Host>
{
    size_t operator()(const NES::Host& host) const { return std::hash<std::string>()(host.name); }
};

namespace fmt
{
template <class... T>
std::string format(const std::string& text, const T&... values)
{
    std::ostringstream out;
    size_t at = 0;
    auto next = [&](const auto& value)
    {
        const auto found = text.find("{}", at);
        out << text.substr(at, found - at) << value;
        at = found + 2;
    };
    (next(values), ...);
    out << text.substr(at);
    return out.str();
}
}

namespace NES
{
// ErrorHandling.hpp: PlacementFailure
struct PlacementFailure : std::runtime_error
{
    using std::runtime_error::runtime_error;
};
// Traits/PlacementTrait.hpp: PlacementTrait
struct PlacementTrait
{
    Host onNode;
};
// Traits/TraitSet.hpp: tryInsert
struct TraitSet
{
    std::optional<PlacementTrait> placement;
    bool tryInsert(PlacementTrait trait)
    {
        const bool added = !placement;
        if (added)
        {
            placement = trait;
        }
        return added;
    }
};
// Sources/SourceDescriptor.hpp, Sinks/SinkDescriptor.hpp: getHost
struct Descriptor
{
    Host host;
    [[nodiscard]] Host getHost() const { return host; }
};
// Operators/Sources/SourceDescriptorLogicalOperator.hpp: getSourceDescriptor
struct SourceDescriptorLogicalOperator
{
    Descriptor descriptor;
    [[nodiscard]] Descriptor getSourceDescriptor() const { return descriptor; }
};
// Operators/Sinks/SinkLogicalOperator.hpp: getSinkName, getSinkDescriptor
struct SinkLogicalOperator
{
    std::string name;
    std::optional<Descriptor> descriptor;
    [[nodiscard]] std::string getSinkName() const { return name; }
    [[nodiscard]] const std::optional<Descriptor>& getSinkDescriptor() const { return descriptor; }
};
// Operators/Windows/JoinLogicalOperator.hpp, WindowedAggregationLogicalOperator.hpp, Operators/UnionLogicalOperator.hpp
struct JoinLogicalOperator
{
};
struct WindowedAggregationLogicalOperator
{
};
struct UnionLogicalOperator
{
};
template <class T>
struct Typed
{
    T value;
    [[nodiscard]] const T& get() const { return value; }
};

// Operators/LogicalOperator.hpp: getId, getChildren, getTraitSet, withTraitSet, withChildren, tryGetAs
class LogicalOperator
{
public:
    std::string kind;
    OperatorId id = 0;
    Host host{""};
    std::string name;
    std::vector<LogicalOperator> children;
    TraitSet traits;

    [[nodiscard]] OperatorId getId() const { return id; }
    [[nodiscard]] const std::vector<LogicalOperator>& getChildren() const { return children; }
    [[nodiscard]] TraitSet getTraitSet() const { return traits; }
    [[nodiscard]] LogicalOperator withTraitSet(TraitSet set) const
    {
        auto copy = *this;
        copy.traits = set;
        return copy;
    }
    [[nodiscard]] LogicalOperator withChildren(std::vector<LogicalOperator> others) const
    {
        auto copy = *this;
        copy.children = std::move(others);
        return copy;
    }
    template <class T>
    [[nodiscard]] std::optional<Typed<T>> tryGetAs() const;
};
template <>
inline std::optional<Typed<SourceDescriptorLogicalOperator>> LogicalOperator::tryGetAs() const
{
    return kind == "source" ? std::optional(Typed<SourceDescriptorLogicalOperator>{{{host}}}) : std::nullopt;
}
template <>
inline std::optional<Typed<SinkLogicalOperator>> LogicalOperator::tryGetAs() const
{
    return kind == "sink" ? std::optional(Typed<SinkLogicalOperator>{{name, Descriptor{host}}}) : std::nullopt;
}
template <>
inline std::optional<Typed<JoinLogicalOperator>> LogicalOperator::tryGetAs() const
{
    return kind == "join" ? std::optional(Typed<JoinLogicalOperator>{}) : std::nullopt;
}
template <>
inline std::optional<Typed<WindowedAggregationLogicalOperator>> LogicalOperator::tryGetAs() const
{
    return kind == "aggregation" ? std::optional(Typed<WindowedAggregationLogicalOperator>{}) : std::nullopt;
}
template <>
inline std::optional<Typed<UnionLogicalOperator>> LogicalOperator::tryGetAs() const
{
    return kind == "union" ? std::optional(Typed<UnionLogicalOperator>{}) : std::nullopt;
}

// Plans/LogicalPlan.hpp: getQueryId, getRootOperators
class LogicalPlan
{
    std::vector<LogicalOperator> roots;

public:
    LogicalPlan(int, std::vector<LogicalOperator> roots) : roots(std::move(roots)) { }
    [[nodiscard]] int getQueryId() const { return 0; }
    [[nodiscard]] const std::vector<LogicalOperator>& getRootOperators() const { return roots; }
};

// NetworkTopology.hpp: contains, findPaths
class NetworkTopology
{
public:
    enum Direction
    {
        Upstream
    };
    // Of every worker, those it sends to.
    std::map<Host, std::set<Host>> down;
    [[nodiscard]] bool contains(const Host& host) const { return down.contains(host); }
    [[nodiscard]] std::vector<int> findPaths(const Host& from, const Host& to, Direction) const
    {
        if (from == to)
        {
            return {1};
        }
        for (const auto& next : down.at(to))
        {
            if (!findPaths(from, next, Upstream).empty())
            {
                return {1};
            }
        }
        return {};
    }
};
// WorkerConfig.hpp: Capacity, maxOperators
namespace CapacityKind
{
struct Unlimited
{
};
struct Limited
{
    size_t value;
};
}
using Capacity = std::variant<CapacityKind::Unlimited, CapacityKind::Limited>;
struct WorkerConfig
{
    Capacity maxOperators;
};
// WorkerCatalog.hpp: getTopology, getWorker
class WorkerCatalog
{
public:
    NetworkTopology topology;
    std::map<Host, Capacity> most;
    [[nodiscard]] NetworkTopology getTopology() const { return topology; }
    [[nodiscard]] std::optional<WorkerConfig> getWorker(const Host& host) const { return WorkerConfig{most.at(host)}; }
};
}
