// The nodes of a cluster: which one leads, how the others are, and which one this page speaks to.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Fields, Value } from "../api";
import { useApp, useReply, useTitle } from "../app";
import type { Action, Asked } from "../app";
import { count, duration, micros, size } from "../format";
import { ActionButton, Badge, Card, Empty, Failure, Figure, Figures, Loading, Page, Table } from "../ui";
import type { Column, Tone } from "../ui";
import { maps, num, text } from "../value";

const nodeEvery = 5000;
const aloneEvery = 60_000; // where nothing says that there are other nodes
const pageEvery = 2000;

/** NodeInfo is what a node says of itself and of its cluster. */
export interface NodeInfo {
	node: string;
	leader: string; // "": none is known, or this node is about to lead
	address: string; // of the leader, for clients; "" if this node leads
	leads: boolean;
	linked: boolean;
	fields: Record<string, string>;
}

/** useNode returns which node of a cluster the page speaks to, null for a broker alone and while nothing is known. */
export function useNode(may: boolean): NodeInfo | null {
	const [alone, isAlone] = useState(false);
	const asked = useReply(may ? ["INFO", "replication", "cluster"] : null, alone ? aloneEvery : nodeEvery);
	const info = Object.fromEntries(text(asked.data).split("\r\n").map((line) => line.split(/:(.*)/s).slice(0, 2))) as Record<string, string>;
	useEffect(() => isAlone(asked.data !== undefined && info.node === undefined), [asked.data === undefined, info.node]);
	if (info.node === undefined) {
		return null;
	}
	const leads = info.role === "master";
	return {
		node: info.node, leader: leads || info.leader !== info.node ? (info.leader ?? "") : "", leads, linked: leads || info.master_link_status === "up",
		address: leads ? "" : `${info.master_host}:${info.master_port}`, fields: info,
	};
}

/** ownPlaces are the pages about a node, not about the broker that several nodes are. */
const ownPlaces = ["clients", "slowlog", "latency", "server"];

/** NodeNote says on every page which node it speaks to if that one does not lead, and which nodes are not well. */
export function NodeNote({ info, place }: { info: NodeInfo; place: string }): ComponentChildren {
	return (
		<>
			<Speaks info={info} place={place} />
			{place !== "nodes" && <Unwell />}
		</>
	);
}

function Speaks({ info, place }: { info: NodeInfo; place: string }) {
	if (!info.linked || info.leader === "") {
		return <p class="banner" role="status">No node leads at the moment, or this one cannot reach it. Commands wait until there is one.</p>;
	}
	const leader = <><strong>{info.leader}</strong>{info.address && <> ({info.address})</>}</>;
	if (ownPlaces.includes(place)) {
		return (
			<p class="banner node" role="note">
				What this page shows is of the node <strong>{info.node}</strong> alone, {info.leads ? "which leads." : <>which follows {leader}.</>}
			</p>
		);
	}
	if (info.leads || place === "nodes") {
		return null;
	}
	return <p class="banner node" role="note">This node, <strong>{info.node}</strong>, follows {leader}. What you do here is passed on to that node, and what you see comes from it.</p>;
}

/** Unwell names the nodes that are not online. */
function Unwell() {
	const may = useApp().may({ command: "FILA.CLUSTER STATUS" }) === "";
	const asked = useReply(may ? ["FILA.CLUSTER", "STATUS"] : null, nodeEvery);
	const unwell = maps(asked.data).filter((m) => m.state !== "online");
	if (unwell.length === 0) {
		return null;
	}
	return <p class="banner" role="status">{unwell.map((m) => `${text(m.id)} is ${text(m.state)}`).join(", ")}: see the <a href="#/nodes">nodes</a>.</p>;
}

/** tones are those of the states of a node. */
const tones: Record<string, [tone: Tone, why: string]> = {
	online: ["good", "It has what the others have."],
	behind: ["wait", "It has lacked something for more than five seconds, or has come back and not caught up yet."],
	readonly: ["bad", "Its store or its log takes no writes: its disk is full, or fails."],
	joining: ["ready", "It waits for a copy of the data, for its vote, or for the others."],
	down: ["bad", "It does not answer."],
};

function remove(id: string, after: () => void): Action {
	return {
		label: "Remove", title: `Remove the node ${id}`, need: { command: "FILA.CLUSTER REMOVE" },
		danger: { what: `The node ${id} leaves the cluster and its process ends. It comes back only with empty directories.`, name: id },
		words: () => ["FILA.CLUSTER", "REMOVE", id], done: () => `${id} is removed.`, after,
	};
}

function transfer(members: Fields[], after: () => void): Action {
	const others = members.filter((m) => m.role === "voter").map((m) => text(m.id));
	return {
		label: "Hand over", title: "Hand over the leadership", need: { command: "FILA.CLUSTER TRANSFER" },
		text: "Another node leads from then on. Clients see a pause and no error.",
		fields: [{ name: "to", label: "To", kind: "select", options: [["", "the one that has most of the log"], ...others.map((id) => [id, id] as [string, string])] }],
		words: (v) => ["FILA.CLUSTER", "TRANSFER", ...(v.to ? [v.to] : [])], done: () => "The leadership is handed over.", after,
	};
}

function verify(after: (reply: Value) => void): Action {
	return {
		label: "Compare stores", title: "Compare the stores of all nodes", need: { command: "FILA.CLUSTER VERIFY" }, submit: "Compare",
		text: "Each node hashes its store as it is at one entry of the log, and serves meanwhile. A node whose store differs from that of the majority ends, and does not start again with it. It may take minutes.",
		words: () => ["FILA.CLUSTER", "VERIFY"], done: () => "The stores are compared.", after,
	};
}

export function Nodes({ info }: { info: NodeInfo | null }) {
	useTitle("Nodes");
	const app = useApp();
	const why = app.may({ command: "FILA.CLUSTER STATUS" });
	const asked = useReply(why === "" && info ? ["FILA.CLUSTER", "STATUS"] : null, pageEvery);
	const [compared, compare] = useState<Value>(null);
	const members = maps(asked.data);
	if (!info) {
		const unknown = app.may({ command: "INFO" });
		return (
			<Page title="Nodes">
				{unknown !== "" ? <Empty title="You may not see the nodes.">This {unknown}.</Empty>
					: <Empty title="This broker runs alone.">Three processes on three machines can be one broker that survives the loss of one of them: see docs/how-to/cluster.md.</Empty>}
			</Page>
		);
	}
	const { cluster_name: cluster = "" } = info.fields;
	return (
		<Page title="Nodes" sub={<span>{cluster && <>The cluster <strong>{cluster}</strong>. </>}This page is from the node <strong>{info.node}</strong>{info.leader === "" ? "; none leads." : info.leads ? ", which leads." : <>, which follows <strong>{info.leader}</strong> and passes on to it what you do.</>}</span>}
			actions={<><ActionButton action={transfer(members, asked.reload)} /><ActionButton action={verify(compare)} /></>}>
			<Summary info={info} members={members} />
			{why !== "" ? <Empty title="You may not see the nodes one by one.">This {why}.</Empty> : <Members asked={asked} members={members} own={info.node} />}
			{compared !== null && <Comparison nodes={maps(compared)} />}
		</Page>
	);
}

/** Summary has what counts for all nodes together. */
function Summary({ info, members }: { info: NodeInfo; members: Fields[] }) {
	const f = info.fields;
	const votes = members.filter((m) => m.role === "leader" || m.role === "voter");
	const there = votes.filter((m) => m.state !== "down" && m.state !== "joining").length;
	const spare = there - (Math.floor(votes.length / 2) + 1);
	const online = members.filter((m) => m.state === "online").length;
	return (
		<Figures>
			<Figure name="Leader" value={info.leader || "none"} tone={info.leader === "" ? "bad" : undefined} />
			{members.length > 0 && <Figure name="Online" value={`${online} of ${members.length}`} tone={online < members.length ? "bad" : undefined} />}
			{votes.length > 0 && <Figure name="May be lost" value={spare < 0 ? "no majority" : count(spare)} unit={spare === 1 ? "node" : spare < 0 ? undefined : "nodes"} tone={spare < 1 ? "bad" : undefined} hint="So many voters more can fail, and a majority is left" />}
			<Figure name="Term" value={count(num(f.term))} hint="Of the election of the leader" />
			<Figure name="Leader changes" value={count(num(f.failovers))} hint="That this node has seen since its start" />
			{info.leads && <Figure name="Confirmed after" value={num(f.confirms) > 0 ? micros(num(f.confirm_us)) : "–"} hint="From writing a batch until a majority has it, the mean since the start" />}
			{!info.leads && <Figure name="Passed on" value={count(num(f.forwarded_commands))} unit={num(f.forwarded_commands) === 1 ? "command" : "commands"} hint="By this node to the one that leads, since its start" />}
		</Figures>
	);
}

const muted = <span class="zero">–</span>;

function Members({ asked, members, own }: { asked: Asked; members: Fields[]; own: string }) {
	const columns: Column<Fields>[] = [
		{ name: "Node", head: true, sort: (m) => text(m.id), cell: (m) => <>{text(m.id)}{m.id === own && <small> this one</small>}<small class="under">{text(m.version)}</small></> },
		{ name: "Role", sort: (m) => text(m.role), cell: (m) => (m.role === "leader" ? <Badge tone="busy">leader</Badge> : text(m.role)) },
		{
			name: "State", wide: true, sort: (m) => text(m.state), cell: (m) => {
				const [tone, what] = tones[text(m.state)] ?? ["quiet", ""];
				return <span class="why"><Badge tone={tone} title={what}>{text(m.state)}</Badge>{m.trouble !== "" && <span class="reason">{text(m.trouble)}</span>}</span>;
			},
		},
		{
			name: "Behind", right: true, hint: "What others have had for a second, and it has not", sort: (m) => num(m.behind),
			cell: (m) => (num(m.behind) > 0 ? <>{count(num(m.behind))}<small class="under">for {duration(num(m.behind_ms))}</small></> : <span class="zero">0</span>),
		},
		{
			name: "Last contact", right: true, sort: (m) => num(m.last_contact_ms),
			cell: (m) => (m.id === own ? muted : num(m.last_contact_ms) < 0 ? "never" : num(m.last_contact_ms) < 2000 ? <span class="zero">now</span> : `${duration(num(m.last_contact_ms))} ago`),
		},
		{ name: "Applied", right: true, hint: "The newest entry of the log that is in its store", sort: (m) => num(m.applied), cell: (m) => count(num(m.applied)) },
		{
			name: "Disk", right: true, hint: "What is free on it, and the size of the log that nodes replicate", sort: (m) => num(m.free_bytes),
			cell: (m) => <>{num(m.free_bytes) > 0 ? `${size(num(m.free_bytes))} free` : muted}{num(m.log_bytes) > 0 && <small class="under">log {size(num(m.log_bytes))}</small>}</>,
		},
		{ name: "Clock", right: true, hint: "Its clock less that of this node", sort: (m) => num(m.clock_skew_ms), cell: (m) => (m.id === own || num(m.last_contact_ms) < 0 ? muted : Math.abs(num(m.clock_skew_ms)) >= 500 ? <Badge tone="wait">{duration(num(m.clock_skew_ms))}</Badge> : duration(num(m.clock_skew_ms))) },
		{ name: "Addresses", cell: (m) => <><span class="mono">{text(m.client) || muted}</span><small class="under">nodes: <span class="mono">{text(m.address)}</span></small></> },
		{ name: "Actions", cell: (m) => (m.role === "leader" ? muted : <ActionButton small action={remove(text(m.id), asked.reload)} />) },
	];
	return (
		<Card title={`${members.length || ""} nodes`} note="as this node knows them: they ask each other once a second">
			<Failure error={asked.error} />
			{asked.data === undefined ? !asked.error && <Loading /> : <Table caption="Nodes" rows={members} id={(m) => text(m.id)} columns={columns} />}
		</Card>
	);
}

/** Comparison shows what a comparison of the stores has found. */
function Comparison({ nodes }: { nodes: Fields[] }) {
	const good = nodes.every((n) => n.result === "equal");
	return (
		<Card title="Comparison of the stores" note={good ? "all are equal" : undefined}>
			<Table caption="Comparison of the stores" rows={nodes} id={(n) => text(n.id)} columns={[
				{ name: "Node", head: true, cell: (n) => text(n.id) },
				{ name: "Result", cell: (n) => <Badge tone={n.result === "equal" ? "good" : n.result === "differs" ? "bad" : "wait"}>{text(n.result)}</Badge> },
				{ name: "Records", right: true, cell: (n) => (num(n.records) > 0 ? count(num(n.records)) : muted) },
				{ name: "Digest", cell: (n) => <span class="mono" title={text(n.digest)}>{text(n.digest).slice(0, 16) || muted}</span> },
				{ name: "Reason", wide: true, cell: (n) => text(n.reason) || muted },
			]} />
		</Card>
	);
}
