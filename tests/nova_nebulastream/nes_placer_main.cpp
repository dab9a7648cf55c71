// Reads workers and a query in the form that test_nes_hook.py writes, and prints where each operator runs.
#include <functional>
#include <iostream>

#include <Placement/NovaPlacement.hpp>
#include "nes_standins.hpp"

using namespace NES;

int main(int, char** arguments)
{
    auto catalog = std::make_shared<WorkerCatalog>();
    std::map<uint64_t, LogicalOperator> operators;
    uint64_t last = 0;
    std::string word;
    while (std::cin >> word)
    {
        if (word == "worker")
        {
            std::string host;
            std::string most;
            std::cin >> host >> most;
            const bool limited = most != "unlimited";
            catalog->most[Host(host)] = limited ? Capacity(CapacityKind::Limited{std::stoul(most)}) : CapacityKind::Unlimited{};
            catalog->topology.down[Host(host)];
        }
        else if (word == "link")
        {
            std::string from;
            std::string to;
            std::cin >> from >> to;
            catalog->topology.down[Host(from)].insert(Host(to));
        }
        else
        {
            // operator KIND ID HOST NAME INPUTS...; operators come after their inputs, the sink last.
            LogicalOperator made;
            std::string host;
            size_t inputs = 0;
            std::cin >> made.kind >> made.id >> host >> made.name >> inputs;
            made.host = Host(host);
            while (inputs-- > 0)
            {
                uint64_t input = 0;
                std::cin >> input;
                made.children.push_back(operators.at(input));
            }
            last = made.id;
            operators.insert_or_assign(made.id, made);
        }
    }
    LogicalPlan plan(0, {operators.at(last)});
    try
    {
        NovaOperatorPlacer(catalog, arguments[1]).apply(plan);
    }
    catch (const PlacementFailure& failure)
    {
        std::cerr << failure.what() << "\n";
        return 1;
    }
    const std::function<void(const LogicalOperator&)> show = [&](const LogicalOperator& op)
    {
        std::cout << op.id << " " << op.traits.placement.value().onNode << "\n";
        for (const auto& child : op.children)
        {
            show(child);
        }
    };
    show(plan.getRootOperators().front());
}
