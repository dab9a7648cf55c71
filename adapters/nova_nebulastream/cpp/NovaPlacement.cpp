#include <Placement/NovaPlacement.hpp>

#include <cstddef>
#include <fstream>
#include <ranges>
#include <sstream>
#include <utility>
#include <variant>
#include <vector>

#include <Identifiers/Identifiers.hpp>
#include <Operators/LogicalOperator.hpp>
#include <Operators/Sinks/SinkLogicalOperator.hpp>
#include <Operators/Sources/SourceDescriptorLogicalOperator.hpp>
#include <Operators/UnionLogicalOperator.hpp>
#include <Operators/Windows/JoinLogicalOperator.hpp>
#include <Operators/Windows/WindowedAggregationLogicalOperator.hpp>
#include <Traits/PlacementTrait.hpp>
#include <ErrorHandling.hpp>
#include <NetworkTopology.hpp>
#include <WorkerConfig.hpp>
#include <fmt/format.h>

namespace NES
{
namespace
{

using Placement = std::unordered_map<OperatorId, Host>;

/// Gives hosts to operators, from the sink down.
class Placer
{
    const std::vector<std::string>& planned;
    size_t next = 0;
    Placement placement;

    /// Where an operator runs that receives from this one.
    const Host& place(const LogicalOperator& op, const Host& consumer)
    {
        if (const auto source = op.tryGetAs<SourceDescriptorLogicalOperator>())
        {
            return put(op, source->get().getSourceDescriptor().getHost());
        }
        if (op.tryGetAs<JoinLogicalOperator>() || op.tryGetAs<WindowedAggregationLogicalOperator>())
        {
            if (next == planned.size())
            {
                throw PlacementFailure(fmt::format("the query has more than the {} joins and aggregations of the plan", next));
            }
            const auto& here = put(op, Host(planned.at(next++)));
            placeChildren(op, here);
            return here;
        }
        if (op.tryGetAs<UnionLogicalOperator>())
        {
            placeChildren(op, consumer);
            return put(op, consumer);
        }
        if (op.getChildren().size() != 1)
        {
            throw PlacementFailure(fmt::format("operator {}: has {} inputs, and is no join or union", op.getId(), op.getChildren().size()));
        }
        return put(op, place(op.getChildren().front(), consumer));
    }

    void placeChildren(const LogicalOperator& op, const Host& here)
    {
        for (const auto& child : op.getChildren())
        {
            place(child, here);
        }
    }

    const Host& put(const LogicalOperator& op, const Host& host) { return placement.emplace(op.getId(), host).first->second; }

public:
    explicit Placer(const std::vector<std::string>& planned) : planned(planned) { }

    Placement place(const LogicalOperator& sink, const SinkLogicalOperator& described)
    {
        const Host host = put(sink, described.getSinkDescriptor()->getHost());
        placeChildren(sink, host);
        if (next != planned.size())
        {
            throw PlacementFailure(fmt::format("the plan has {} joins and aggregations, the query {}", planned.size(), next));
        }
        return std::move(placement);
    }
};

void checkPaths(const LogicalOperator& op, const Placement& placement, const NetworkTopology& topology)
{
    const auto& here = placement.at(op.getId());
    for (const auto& child : op.getChildren())
    {
        const auto& there = placement.at(child.getId());
        if (here != there && topology.findPaths(here, there, NetworkTopology::Upstream).empty())
        {
            throw PlacementFailure(fmt::format("no path from {} to {}, on which operator {} needs its input", there, here, op.getId()));
        }
        checkPaths(child, placement, topology);
    }
}

/// Operators that take room: all but sources and sinks.
void countOperators(const LogicalOperator& op, const Placement& placement, std::unordered_map<Host, size_t>& count)
{
    if (!op.tryGetAs<SourceDescriptorLogicalOperator>() && !op.tryGetAs<SinkLogicalOperator>())
    {
        ++count[placement.at(op.getId())];
    }
    for (const auto& child : op.getChildren())
    {
        countOperators(child, placement, count);
    }
}

LogicalOperator withPlacement(const LogicalOperator& op, const Placement& placement)
{
    auto traits = op.getTraitSet();
    if (!traits.tryInsert(PlacementTrait(placement.at(op.getId()))))
    {
        throw PlacementFailure(fmt::format("operator {} has a placement already", op.getId()));
    }
    std::vector<LogicalOperator> children;
    for (const auto& child : op.getChildren())
    {
        children.push_back(withPlacement(child, placement));
    }
    return op.withTraitSet(traits).withChildren(children);
}

}

NovaOperatorPlacer::NovaOperatorPlacer(SharedPtr<const WorkerCatalog> catalog, const std::string& planFile)
    : workerCatalog(std::move(catalog))
{
    std::ifstream file(planFile);
    if (!file)
    {
        throw PlacementFailure(fmt::format("{}: cannot be read", planFile));
    }
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number)
    {
        std::istringstream words(line);
        std::string sink;
        if (!(words >> sink))
        {
            continue;
        }
        std::vector<std::string> hosts;
        for (std::string host; words >> host;)
        {
            hosts.push_back(host);
        }
        if (!plannedHosts.emplace(sink, std::move(hosts)).second)
        {
            throw PlacementFailure(fmt::format("{}: line {}: sink {} is there twice", planFile, number, sink));
        }
    }
}

void NovaOperatorPlacer::apply(LogicalPlan& logicalPlan) const
{
    const auto root = logicalPlan.getRootOperators().front();
    const auto sink = root.tryGetAs<SinkLogicalOperator>();
    if (!sink || !sink->get().getSinkDescriptor())
    {
        throw PlacementFailure("the query has no sink on a worker");
    }
    const auto name = fmt::format("{}", sink->get().getSinkName());
    const auto planned = plannedHosts.find(name);
    if (planned == plannedHosts.end())
    {
        throw PlacementFailure(fmt::format("sink {}: not in Nova's plan", name));
    }
    const auto placement = Placer(planned->second).place(root, sink->get());
    const auto topology = workerCatalog->getTopology();
    for (const auto& [id, host] : placement)
    {
        if (!topology.contains(host))
        {
            throw PlacementFailure(fmt::format("operator {}: there is no worker {}", id, host));
        }
    }
    checkPaths(root, placement, topology);
    std::unordered_map<Host, size_t> count;
    countOperators(root, placement, count);
    for (const auto& [host, operators] : count)
    {
        const auto capacity = workerCatalog->getWorker(host).value().maxOperators;
        const auto* const limited = std::get_if<CapacityKind::Limited>(&capacity);
        if (limited != nullptr && operators > limited->value)
        {
            throw PlacementFailure(fmt::format("worker {}: {} operators, at most {} may run there", host, operators, limited->value));
        }
    }
    logicalPlan = LogicalPlan(logicalPlan.getQueryId(), {withPlacement(root, placement)});
}

}
