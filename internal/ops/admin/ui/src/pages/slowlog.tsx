import { useApp, useReply, useTitle } from "../app";
import { redisLine, micros } from "../format";
import { ActionButton, Card, Empty, Failure, Loading, Page, Table, Time } from "../ui";
import { bytes, list, num, text } from "../value";

export function SlowLog() {
	useTitle("Slow log");
	const app = useApp();
	const why = app.may({ command: "SLOWLOG GET" });
	const asked = useReply(why === "" ? ["SLOWLOG", "GET", "128"] : null, 5000);
	const rows = list(asked.data).map(list);
	const reset = {
		label: "Reset", title: "Empty the slow log", need: { command: "SLOWLOG RESET" }, danger: { what: `${rows.length} entries go.`, name: "slowlog" },
		words: () => ["SLOWLOG", "RESET"], done: () => "The slow log is empty.", after: asked.reload,
	};
	return (
		<Page title="Slow log" sub={<span>Commands that took longer than the setting <code>slowlog.slower_than_us</code>, the newest first; without the time that they waited for messages.</span>} actions={<ActionButton action={reset} />}>
			{why !== "" ? <Empty title="You may not see the slow log.">This {why}.</Empty> : (
				<Card>
					<Failure error={asked.error} />
					{asked.data === undefined ? !asked.error && <Loading /> : (
						<Table caption="Slow commands" rows={rows} id={(e) => text(e[0])} empty={<Empty title="No command was slow." />} columns={[
							{ name: "At", head: true, sort: (e) => num(e[1]), cell: (e) => <Time at={num(e[1]) * 1000} /> },
							{ name: "Took", right: true, sort: (e) => num(e[2]), cell: (e) => micros(num(e[2])) },
							{ name: "Command", wide: true, sort: (e) => text(list(e[3])[0]), cell: (e) => <span class="mono">{redisLine(list(e[3]).map(bytes))}</span> },
							{ name: "Client", cell: (e) => <span class="mono">{text(e[4])}</span> },
							{ name: "Name", cell: (e) => text(e[5]) || <span class="zero">–</span> },
						]} />
					)}
				</Card>
			)}
		</Page>
	);
}
