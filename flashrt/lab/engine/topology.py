"""What an execution is held against: two pools, the paths between them, and service rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from flashrt.lab.engine.link import Link, Path
from flashrt.lab.engine.pool import Pool
from flashrt.lab.records import (
    KVResidencySystemConfig,
    Node,
    Placement,
    ResourceGraph,
    ResourceLink,
)
from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Topology:
    """One computing place with its pool, a second pool that states can wait in, and the paths."""

    device: Pool
    host: Pool
    to_device: Path
    to_host: Path
    compute_flops_per_us: Fraction
    memory_bytes_per_us: Fraction

    def service_us(self, nodes: tuple[Node, ...]) -> Fraction:
        """The longer of operations and memory traffic, in virtual microseconds."""
        flops = sum(node.flops for node in nodes)
        moved = sum(node.bytes for node in nodes)
        return max(flops / self.compute_flops_per_us, moved / self.memory_bytes_per_us)

    def pools(self) -> Iterator[Pool]:
        """Device, then host."""
        yield self.device
        yield self.host


def topology(
    system: KVResidencySystemConfig, graph: ResourceGraph | None, placement: Placement | None
) -> Topology:
    """The system's own resources, or those of the graph where the placement puts them.

    Without a graph one link carries both directions in turn. With one, rates are those of the
    placed nodes and links, and the system's KV budgets must fit into the nodes' memory; the
    system's own rates describe a system that is not placed and are not read.

    Raises :class:`Refusal` (CONFLICT): a graph without a placement or the reverse, an unknown node
    or link, a path whose links do not join, a budget above its node's memory.
    """
    device = Pool("device", system.kv_cache.device_kv_bytes)
    host = Pool("host", system.kv_cache.host_kv_bytes)
    if graph is None and placement is None:
        link = Link("link", system.transfer.link_bytes_per_us, system.transfer.link_latency_us)
        service = system.compute_service
        return Topology(
            device,
            host,
            Path((link,), "device"),
            Path((link,), "host"),
            service.compute_flops_per_us,
            service.memory_bytes_per_us,
        )
    if graph is None or placement is None:
        raise _conflict("placement", "a resource graph and a placement in it go together")
    return _placed((device, host), graph, placement)


def _placed(pools: tuple[Pool, Pool], graph: ResourceGraph, placement: Placement) -> Topology:
    device, host = pools
    nodes = {node.node_id: node for node in graph.nodes}
    links = {link.link_id: link for link in graph.links}
    if len(nodes) < len(graph.nodes) or len(links) < len(graph.links):
        raise _conflict("graph", "two nodes or two links have one name")
    if placement.device_node == placement.host_node:
        raise _conflict("placement.host_node", "it is the device's node too")
    for pool, name in ((device, placement.device_node), (host, placement.host_node)):
        if name not in nodes:
            raise _conflict("placement", f"the graph has no node {name}")
        if pool.budget > nodes[name].memory_bytes:
            raise _conflict(
                f"kv_cache.{pool.node}_kv_bytes",
                f"{pool.budget} bytes are more than the {nodes[name].memory_bytes} of node {name}",
            )
        pool.node = name
    held: dict[str, Link] = {}
    worker = nodes[placement.device_node]
    return Topology(
        device,
        host,
        _path(links, held, placement.to_device, (host.node, device.node)),
        _path(links, held, placement.to_host, (device.node, host.node)),
        worker.compute_flops_per_us,
        worker.memory_bytes_per_us,
    )


def _path(
    links: dict[str, ResourceLink],
    held: dict[str, Link],
    names: tuple[str, ...],
    ends: tuple[str, str],
) -> Path:
    at, target = ends
    for name in names:
        link = links.get(name)
        if link is None:
            raise _conflict("placement", f"the graph has no link {name}")
        if link.source != at:
            raise _conflict("placement", f"link {name} leaves {link.source}, not {at}")
        held.setdefault(name, Link(name, link.bytes_per_us, link.latency_us))
        at = link.target
    if at != target or len(set(names)) < len(names):
        raise _conflict("placement", f"links {', '.join(names)} are no path to {target}")
    return Path(tuple(held[name] for name in names), target)


def _conflict(subject: str, what: str) -> Refusal:
    return Refusal(Reason.CONFLICT, what, subject=subject, do="name nodes and links of the graph")
