import { useState } from "preact/hooks";
import type { Bytes, Fields } from "../api";
import { useApp, useReply, useTitle } from "../app";
import type { Action, Values } from "../app";
import { ago, count } from "../format";
import { to } from "../route";
import type { Route } from "../route";
import { ActionButton, Badge, Card, Empty, Facts, Failure, Loading, Num, Page, Pager, Table, Time } from "../ui";
import { bytes, key, maybe, num, page, text } from "../value";
import { List } from "./listing";

function set(b?: Fields): Action {
	const had = (name: string) => (b && b[name] !== null && b[name] !== undefined ? text(b[name]) : "");
	const name = b ? bytes(b.name) : undefined;
	return {
		label: b ? "Change settings" : "New budget", title: b ? `Change settings of ${text(name)}` : "New budget", need: { command: "FILA.BUDGET SET" }, submit: "Set", text: b ? "Settings that are left out get their defaults; the sums stay." : undefined,
		fields: [
			...(b ? [] : [{ name: "name", label: "Name", required: true, placeholder: "acme" }]),
			{ name: "debt", label: "How far below zero a charge may go", kind: "number" as const, min: 0, value: had("debt") },
			{ name: "low", label: "Say so when the balance falls below", kind: "number" as const, value: had("low") },
			{ name: "refuse", label: "Refuse messages that are not covered, in place of holding them", kind: "check" as const, value: num(b?.refuse) ? "on" : "" },
			{ name: "detail", label: "An entry of the history for each message", kind: "check" as const, value: num(b?.detail) ? "on" : "" },
			{ name: "refill", label: "Refill by", kind: "number" as const, min: 0, value: had("refill") },
			{ name: "every", label: "Every", value: had("every"), placeholder: "@monthly" },
			{ name: "zone", label: "Time zone", value: had("zone"), placeholder: "UTC" },
			{ name: "max", label: "Refill up to", kind: "number" as const, min: 0, value: had("max") },
		],
		words: (v: Values) => [
			"FILA.BUDGET", "SET", name ?? v.name ?? "", ...(v.debt && v.debt !== "0" ? ["DEBT", v.debt] : []), ...(v.low ? ["LOW", v.low] : []),
			...(v.refuse ? ["REFUSE"] : []), ...(v.detail ? ["DETAIL"] : []), ...(v.refill ? ["REFILL", v.refill] : []), ...(v.every ? ["EVERY", v.every] : []),
			...(v.zone && v.every ? ["TZ", v.zone] : []), ...(v.max && v.every ? ["MAX", v.max] : []),
		],
		done: () => "The budget is set.",
	};
}

function move(name: Bytes, what: "CREDIT" | "CHARGE", after: () => void): Action {
	const charge = what === "CHARGE";
	return {
		label: charge ? "Charge" : "Credit", title: `${charge ? "Charge" : "Credit"} ${text(name)}`, need: { command: `FILA.BUDGET ${what}` },
		fields: [
			{ name: "n", label: "Credits", kind: "number", min: 1, required: true },
			{ name: "id", label: "Id", placeholder: "invoice-17", hint: "The same id is done once." },
			{ name: "note", label: "Note" },
			...(charge ? [{ name: "force", label: "Also if it is not covered", kind: "check" as const }] : []),
		],
		words: (v) => ["FILA.BUDGET", what, name, v.n ?? "", ...(v.id ? ["ID", v.id] : []), ...(v.note ? ["NOTE", v.note] : []), ...(v.force ? ["FORCE"] : [])],
		done: (balance) => `The balance of ${text(name)} is ${count(num(balance))}.`, after,
	};
}

export function Budgets({ route }: { route: Route }) {
	const name = route.names[1];
	if (name !== undefined) {
		return <Budget key={key(name)} name={name} />;
	}
	return (
		<List route={route} of={{
			title: "Budgets", what: "budgets", filter: "Filter by name", words: ["FILA.BUDGET", "LIST"], command: "FILA.BUDGET LIST", create: set(),
			sub: "Prepaid credits: a message that names a budget is delivered when it is covered.", id: (b) => key(bytes(b.name)),
			empty: <Empty title="There is no budget yet.">A budget is an account of prepaid credits, such as the tokens of a tenant.</Empty>,
			columns: (reload) => [
				{ name: "Budget", head: true, wide: true, sort: (b) => text(b.name), cell: (b) => <><a href={to(["budgets", bytes(b.name)])}>{text(b.name)}</a> {state(b)}</> },
				{ name: "Available", right: true, sort: (b) => num(b.available), cell: (b) => <Num n={num(b.available)} /> },
				{ name: "Balance", right: true, sort: (b) => num(b.balance), cell: (b) => <Num n={num(b.balance)} /> },
				{ name: "Reserved", right: true, sort: (b) => num(b.reserved), cell: (b) => <Num n={num(b.reserved)} /> },
				{ name: "Credited", right: true, sort: (b) => num(b.credited), cell: (b) => <Num n={num(b.credited)} /> },
				{ name: "Spent", right: true, sort: (b) => num(b.spent), cell: (b) => <Num n={num(b.spent)} /> },
				{ name: "Keys waiting", right: true, sort: (b) => num(b.waiting), cell: (b) => <Num n={num(b.waiting)} /> },
				{ name: "Next refill", sort: (b) => num(b.next_at), cell: (b) => (b.next_at ? <span title={text(b.every)}>{ago(maybe(b.next_at))}</span> : <span class="zero">–</span>) },
				{ name: "Actions", cell: (b) => <span class="rowactions"><ActionButton small action={move(bytes(b.name), "CREDIT", reload)} /></span> },
			],
		}} />
	);
}

function state(b: Fields) {
	if (num(b.available) + num(b.debt) <= 0) {
		return <Badge tone="bad">empty</Badge>;
	}
	return b.low !== null && num(b.balance) < num(b.low) ? <Badge tone="wait">low</Badge> : null;
}

function Budget({ name }: { name: Bytes }) {
	const shown = text(name);
	useTitle(shown);
	const app = useApp();
	const why = app.may({ command: "FILA.BUDGET GET" });
	const mayHistory = app.may({ command: "FILA.BUDGET HISTORY" });
	const [cursor, setCursor] = useState<Bytes>("0");
	const asked = useReply(why === "" ? ["FILA.BUDGET", "GET", name] : null, 2000);
	const history = useReply(mayHistory === "" ? ["FILA.BUDGET", "HISTORY", name, "CURSOR", cursor, "COUNT", "100"] : null, cursor === "0" ? 5000 : 0);
	const crumbs: [string, string][] = [["Budgets", "#/budgets"]];
	const b = asked.data as Fields | null | undefined;
	if (!b) {
		return <Page title={shown} crumbs={crumbs}>{why !== "" ? <Empty title="You may not see budgets.">This {why}.</Empty> : b === null ? <Empty title="There is no such budget." /> : asked.error ? <Failure error={asked.error} /> : <Loading />}</Page>;
	}
	const reload = () => {
		asked.reload();
		history.reload();
	};
	const result = page(history.data);
	const remove: Action = {
		label: "Delete", title: `Delete the budget ${shown}`, need: { command: "FILA.BUDGET DEL" },
		danger: { what: `Its balance of ${count(num(b.balance))} and its history go; messages that name it are held.`, name: shown },
		words: () => ["FILA.BUDGET", "DEL", name], done: () => `${shown} is deleted.`, after: () => (location.hash = "#/budgets"),
	};
	return (
		<Page title={shown} crumbs={crumbs} sub={state(b) ?? "covered"} actions={[move(name, "CREDIT", reload), move(name, "CHARGE", reload), { ...set(b), after: reload }, remove].map((a) => <ActionButton key={a.label} action={a} />)}>
			<Card title="Sums and settings">
				<Facts facts={[
					["Available", count(num(b.available))], ["Balance", count(num(b.balance))], ["Reserved by leases", count(num(b.reserved))],
					["Credited", count(num(b.credited))], ["Spent", count(num(b.spent))], ["Keys waiting", count(num(b.waiting))],
					["Debt allowed", count(num(b.debt))], ["Low below", b.low === null ? "–" : count(num(b.low))], ["Not covered", num(b.refuse) ? "refused" : "held"],
					["Refill", b.refill === null || b.refill === undefined ? "–" : `${text(b.refill)} ${text(b.every)} ${text(b.zone)}`], ["Refill up to", b.max === null || b.max === undefined ? "–" : count(num(b.max))],
					["Next refill", b.next_at ? <Time at={maybe(b.next_at)} /> : "–"], ["Made", <Time at={maybe(b.created_at)} />],
				]} />
			</Card>
			<Card title="History">
				{mayHistory !== "" && <Empty title="You may not see the history.">This {mayHistory}.</Empty>}
				<Failure error={history.error} />
				{history.data !== undefined && <Table caption="History" rows={result.items} id={(e) => JSON.stringify(e)} empty={<Empty title="Nothing has moved it yet." />} columns={[
					{ name: "At", head: true, cell: (e) => <Time at={maybe(e.at)} /> },
					{ name: "Kind", cell: (e) => text(e.kind) },
					{ name: "Amount", right: true, cell: (e) => <span class={num(e.amount) < 0 ? "minus" : "plus"}>{num(e.amount) > 0 && "+"}{count(num(e.amount))}</span> },
					{ name: "Balance", right: true, cell: (e) => count(num(e.balance)) },
					{ name: "Id", cell: (e) => <span class="clip">{text(e.id)}</span> },
					{ name: "Note", wide: true, cell: (e) => text(e.note) },
					{ name: "Messages", right: true, cell: (e) => (e.count === null || e.count === undefined || num(e.count) === 0 ? <span class="zero">–</span> : count(num(e.count))) },
					{ name: "Queue", cell: (e) => text(e.queue) },
					{ name: "Key", cell: (e) => text(e.key) },
				]} />}
				<Pager what="the history" first={cursor === "0"} next={text(result.next) !== "0"} onFirst={() => setCursor("0")} onNext={() => setCursor(result.next)} />
			</Card>
		</Page>
	);
}
