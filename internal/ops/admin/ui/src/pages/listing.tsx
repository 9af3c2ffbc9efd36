// Lists of things that are not queues: throttles, budgets, groups, signals, schedules, what was changed.
// All are pages of a command with CURSOR, most of them with MATCH.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Bytes, Fields } from "../api";
import { useApp, useReply, useTitle } from "../app";
import { refine } from "../route";
import type { Route } from "../route";
import { ActionButton, Card, Empty, Failure, Loading, Page, Pager, Search, Table } from "../ui";
import type { Column } from "../ui";
import type { Action } from "../app";
import { page, text } from "../value";
import { patternOf } from "./overview";

export interface Listing {
	title: string;
	sub: ComponentChildren;
	what: string;
	words: Bytes[];
	command: string;
	create?: Action;
	columns(reload: () => void): Column<Fields>[];
	id(f: Fields): string;
	empty: ComponentChildren;
	filter?: string; // label of what filters by name; none: nothing does
	option?: string;
	absent?(match: string): ComponentChildren; // what is said beside that nothing matches
	parse?(reply: unknown): { next: Bytes; items: Fields[] };
	after?: ComponentChildren;
}

const pageSize = "100";

export function List({ route, of }: { route: Route; of: Listing }) {
	useTitle(of.title);
	const app = useApp();
	const match = route.query.get("match") ?? "";
	const [cursor, setCursor] = useState<Bytes>("0");
	const why = app.may({ command: of.command });
	const option = of.option ?? "MATCH";
	const words: Bytes[] = [...of.words, ...(match === "" ? [] : [option, option === "MATCH" ? patternOf(match) : match]), "CURSOR", cursor, "COUNT", pageSize];
	const asked = useReply(why === "" ? words : null, 2000);
	const result = of.parse ? of.parse(asked.data) : page(asked.data);
	const create = of.create && { ...of.create, after: asked.reload };
	return (
		<Page title={of.title} sub={of.sub} actions={create && <ActionButton primary action={create} />}>
			{why !== "" ? <Empty title={`You may not see ${of.what}.`}>This {why}.</Empty> : (
				<Card actions={of.filter !== undefined && <Search label={of.filter} shortcut value={match} onChange={(v) => {
					setCursor("0");
					refine(route, { match: v });
				}} />}>
					<Failure error={asked.error} />
					{asked.data === undefined ? !asked.error && <Loading /> : (
						<Table caption={of.title} rows={result.items} id={of.id} columns={of.columns(asked.reload)}
							empty={match !== "" ? <Empty title={`Nothing matches ${match}${text(result.next) === "0" ? "." : " on this page: go on to the next."}`}>{of.absent?.(match)}</Empty> : of.empty} />
					)}
					<Pager what={of.what} first={cursor === "0"} next={text(result.next) !== "0"} onFirst={() => setCursor("0")} onNext={() => setCursor(result.next)} />
				</Card>
			)}
			{of.after}
		</Page>
	);
}
