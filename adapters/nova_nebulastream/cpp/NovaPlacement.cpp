#include <Placement/NovaPlacement.hpp>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <vector>

#include <Identifiers/Identifiers.hpp>
#include <Operators/LogicalOperator.hpp>
#include <Operators/SelectionLogicalOperator.hpp>
#include <Operators/Sinks/SinkLogicalOperator.hpp>
#include <Operators/Sources/SourceDescriptorLogicalOperator.hpp>
#include <Operators/Windows/JoinLogicalOperator.hpp>
#include <Traits/PlacementTrait.hpp>
#include <ErrorHandling.hpp>
#include <NetworkTopology.hpp>
#include <fmt/format.h>

namespace NES
{
namespace
{

using Placement = std::unordered_map<OperatorId, Host>;

bool hasJoin(const LogicalOperator& op)
{
    if (op.tryGetAs<JoinLogicalOperator>())
    {
        return true;
    }
    for (const auto& child : op.getChildren())
    {
        if (hasJoin(child))
        {
            return true;
        }
    }
    return false;
}

Host sourceHost(const LogicalOperator& op)
{
    if (const auto source = op.tryGetAs<SourceDescriptorLogicalOperator>())
    {
        return source->get().getSourceDescriptor().getHost();
    }
    if (op.getChildren().size() != 1)
    {
        throw PlacementFailure(fmt::format("operator {}: below a join there is more than one way to a source", op.getId()));
    }
    return sourceHost(op.getChildren().front());
}

/// One input of a join: a selection and all below it is on the source's host, the rest on the join's.
void placeInput(const LogicalOperator& op, const Host& join, bool belowSelection, Placement& placement)
{
    const bool atSource = belowSelection || op.tryGetAs<SelectionLogicalOperator>() || op.tryGetAs<SourceDescriptorLogicalOperator>();
    placement.emplace(op.getId(), atSource ? sourceHost(op) : join);
    for (const auto& child : op.getChildren())
    {
        placeInput(child, join, atSource, placement);
    }
}

/// The join and what is above it, but for the sink, are on the join's host.
void placeAbove(const LogicalOperator& op, const Host& join, Placement& placement)
{
    if (!hasJoin(op))
    {
        placeInput(op, join, false, placement);
        return;
    }
    placement.emplace(op.getId(), join);
    for (const auto& child : op.getChildren())
    {
        placeAbove(child, join, placement);
    }
}

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
        std::string host;
        std::string rest;
        if (line.empty())
        {
            continue;
        }
        if (!(words >> sink >> host) || words >> rest || !joinHosts.emplace(sink, host).second)
        {
            throw PlacementFailure(fmt::format("{}: line {}: expected the name of a sink, once, and a worker", planFile, number));
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
    const auto planned = joinHosts.find(name);
    if (planned == joinHosts.end())
    {
        throw PlacementFailure(fmt::format("sink {}: not in Nova's plan", name));
    }
    if (!hasJoin(root))
    {
        throw PlacementFailure(fmt::format("sink {}: the query has no join", name));
    }
    Placement placement;
    placement.emplace(root.getId(), sink->get().getSinkDescriptor()->getHost());
    for (const auto& child : root.getChildren())
    {
        placeAbove(child, Host(planned->second), placement);
    }
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
        const size_t most = workerCatalog->getWorker(host).value().maxOperators;
        if (operators > most)
        {
            throw PlacementFailure(fmt::format("worker {}: {} operators, at most {} may run there", host, operators, most));
        }
    }
    logicalPlan = LogicalPlan(logicalPlan.getQueryId(), {withPlacement(root, placement)});
}

}
