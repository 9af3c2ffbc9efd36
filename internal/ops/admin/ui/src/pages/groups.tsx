// Groups of messages: how far each is, and the message that is enqueued when its members have ended.

import type { ComponentChildren } from "preact";
import type { Bytes, Fields } from "../api";
import { useApp, useReply, useTitle } from "../app";
import type { Action } from "../app";
import { CommandLine } from "../action";
import { ago, count, plural, short } from "../format";
import { to } from "../route";
import type { Route } from "../route";
import { ActionButton, Badge, Card, Code, Empty, Facts, Failure, Figure, Figures, Level, Loading, Num, Page, Time } from "../ui";
import type { Column, Tone } from "../ui";
import { bytes, key, maybe, num, text } from "../value";
import { List } from "./listing";
import { messageFields, messageWords } from "./queue";

const tones: Record<string, Tone> = { open: "ready", sealed: "busy", done: "good", cancelled: "bad" };

function State({ g }: { g: Fields }) {
	return <Badge tone={tones[text(g.state)] ?? "quiet"} title={text(g.error) || undefined}>{text(g.state)}</Badge>;
}

function open(): Action {
	return {
		label: "Open a group", need: { command: "FILA.GROUP OPEN" }, submit: "Open",
		text: "Members join with GROUP of FILA.ENQUEUE and FILA.PUBLISH. Once it is sealed and all of them have ended, its message is enqueued.",
		fields: [
			{ name: "name", label: "Name", required: true, placeholder: "import-7" },
			{ name: "queue", label: "Queue of its message", required: true },
			...messageFields(),
			{ name: "outer", label: "Group of its message", hint: "It is a member of that group from now on." },
			{ name: "acks", label: "Dead members keep it waiting", kind: "check" },
			{ name: "expire", label: "Cancel it after, ms", kind: "number", min: 1, placeholder: "never" },
		],
		words: (v) => [
			"FILA.GROUP", "OPEN", v.name ?? "", v.queue ?? "", ...messageWords(v), ...(v.outer ? ["GROUP", v.outer] : []),
			...(v.acks ? ["WHEN", "DONE"] : []), ...(v.expire ? ["EXPIRE", v.expire] : []),
		],
		done: (n) => (num(n) === 1 ? "The group is open." : "There is a group of that name: it stays as it is."),
	};
}

/** groupActions are those that the state of a group allows. */
function groupActions(name: Bytes, g: Fields, after: () => void): Action[] {
	const shown = text(name);
	const need = (command: string) => ({ command, queue: name, access: "produce" as const });
	const seal: Action = {
		label: "Seal", title: `Seal ${shown}`, need: need("FILA.GROUP SEAL"), after,
		text: "It takes no more members. When none is pending, its message is enqueued.",
		words: () => ["FILA.GROUP", "SEAL", name], done: (n) => (num(n) === 0 ? "The group is sealed." : `The group is sealed: ${plural(num(n), "member")} pending.`),
	};
	const cancel: Action = {
		label: "Cancel", title: `Cancel ${shown}`, need: need("FILA.GROUP CANCEL"), submit: "Cancel the group", after,
		danger: { what: `Of ${plural(num(g.pending), "pending member")} those that are not leased are removed, and its message is not enqueued.`, name: shown },
		words: () => ["FILA.GROUP", "CANCEL", name], done: (n) => (num(n) === 1 ? "The group is cancelled." : "It had ended already."),
	};
	const state = text(g.state);
	return state === "open" ? [seal, cancel] : state === "sealed" ? [cancel] : [];
}

const progress = (g: Fields) => `${count(num(g.done))} of ${plural(num(g.members), "member")} done`;

/** Done is a bar of the members that are done. */
function Done({ g }: { g: Fields }) {
	return <Level value={num(g.done)} max={num(g.members)} label={progress(g)} />;
}

export function Groups({ route }: { route: Route }) {
	const name = route.names[1];
	if (name !== undefined) {
		return <Group key={key(name)} name={name} />;
	}
	const number = (title: string, field: string): Column<Fields> => ({ name: title, right: true, sort: (g) => num(g[field]), cell: (g) => <Num n={num(g[field])} /> });
	return (
		<List route={route} of={{
			title: "Groups", what: "groups", filter: "Filter by name", words: ["FILA.GROUP", "LIST"], command: "FILA.GROUP LIST", create: open(),
			sub: "Messages that are done together: when the last member of a group has ended, the message of the group is enqueued.", id: (g) => key(bytes(g.name)),
			empty: <Empty title="No group is waiting.">A group is listed from <code>FILA.GROUP OPEN</code> until its end. Filter by its name to find one that has ended.</Empty>,
			absent: (match) => <>Groups that have ended are not listed: <a href={to(["groups", match])}>look for {match} among them</a>.</>,
			columns: (reload) => [
				{ name: "Group", head: true, wide: true, sort: (g) => text(g.name), cell: (g) => <a href={to(["groups", bytes(g.name)])}>{text(g.name)}</a> },
				{ name: "State", sort: (g) => text(g.state), cell: (g) => <State g={g} /> },
				{ name: "Progress", hint: "Members that are done", sort: (g) => num(g.done) / Math.max(1, num(g.members)), cell: (g) => (num(g.members) === 0 ? <span class="zero">no members</span> : <span class="gauge"><Done g={g} /><span>{short(num(g.done))} of {short(num(g.members))}</span></span>) },
				number("Pending", "pending"), number("Dead", "dead"), number("Cancelled", "cancelled"),
				{ name: "Opened", sort: (g) => num(g.opened_at), cell: (g) => ago(maybe(g.opened_at)) },
				{ name: "Actions", cell: (g) => <span class="rowactions">{groupActions(bytes(g.name), g, reload).map((a) => <ActionButton key={a.label} small action={a} />)}</span> },
			],
		}} />
	);
}

/** story says in a sentence what a group waits for, or how it has ended. */
function story(g: Fields): string {
	switch (text(g.state)) {
		case "open":
			return "It takes members. It ends once it is sealed and none of them is pending.";
		case "sealed":
			return num(g.pending) > 0 ? `It takes no more members, and waits for ${count(num(g.pending))} of them.` : "Its dead members keep it waiting: redrive them, or remove them from the dead-letter queue.";
		case "done":
			return "All members have ended, and its message was enqueued.";
	}
	return "No member of it is delivered any more, and its message was not enqueued.";
}

function Group({ name }: { name: Bytes }) {
	const shown = text(name);
	useTitle(shown);
	const app = useApp();
	const why = app.may({ command: "FILA.GROUP GET", queue: name, access: "either" });
	const words: Bytes[] = ["FILA.GROUP", "GET", name];
	const asked = useReply(why === "" ? words : null, 2000);
	const crumbs: [string, string][] = [["Groups", "#/groups"]];
	const g = asked.data as Fields | null | undefined;
	if (!g) {
		return (
			<Page title={shown} crumbs={crumbs}>
				{why !== "" ? <Empty title="You may not see this group.">This {why}.</Empty>
					: g === null ? <Empty title="No group of this name is known.">One that has ended is known for a time, a day by default (<code>groups.keep_ms</code>).</Empty>
					: asked.error ? <Failure error={asked.error} /> : <Loading />}
			</Page>
		);
	}
	const time = (title: string, at: number | null): [ComponentChildren, ComponentChildren] => [title, at === null ? <span class="zero">–</span> : <><Time at={at} /> ({ago(at)})</>];
	const queue = bytes(g.queue);
	return (
		<Page title={shown} crumbs={crumbs} sub={<State g={g} />} actions={groupActions(name, g, asked.reload).map((a) => <ActionButton key={a.label} action={a} />)}>
			<Failure error={asked.error} />
			<Figures>
				{["members", "pending", "done", "dead", "cancelled"].map((field) => (
					<Figure key={field} name={field.replace(/^./, (c) => c.toUpperCase())} value={short(num(g[field]))} hint={count(num(g[field]))} tone={field === "dead" && num(g.dead) > 0 ? "bad" : undefined} />
				))}
			</Figures>
			<Card>
				<p class="explain">{story(g)}</p>
				{text(g.error) !== "" && <p class="failure"><strong>Why it is cancelled.</strong> {text(g.error)}</p>}
				{num(g.members) > 0 && <div class="progress"><Done g={g} /><span>{progress(g)}</span></div>}
				<Facts facts={[
					["Its message", g.message === null ? "not enqueued" : <a href={to(["queues", queue, "messages", bytes(g.message)])}><Code>{text(g.message)}</Code></a>],
					["Queue of its message", <a href={to(["queues", queue])}>{text(queue)}</a>],
					time("Opened", maybe(g.opened_at)), time("Sealed", maybe(g.sealed_at)), time("Ended", maybe(g.ended_at)),
				]} />
				<details><summary>Command line</summary><CommandLine words={words} /></details>
			</Card>
		</Page>
	);
}
