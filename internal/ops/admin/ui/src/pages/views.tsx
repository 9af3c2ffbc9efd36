// Views: searches with a name, which the browser keeps. The address of the page has the search that is shown.

import { useId, useState } from "preact/hooks";

/** View is a search, as its line is typed. */
interface View {
	name: string;
	line: string;
}

const place = "fila-views";
const viewsMax = 50;

function stored(): View[] {
	try {
		const all: unknown = JSON.parse(localStorage.getItem(place) ?? "[]");
		return Array.isArray(all) ? all.filter((v): v is View => typeof v?.name === "string" && typeof v?.line === "string").slice(0, viewsMax) : [];
	} catch {
		return []; // there is no storage, or something else has written it
	}
}

/** Views keeps searches of all queues under names. */
export function Views({ line, onOpen }: { line: string; onOpen(line: string): void }) {
	const id = useId();
	const [views, set] = useState(stored);
	const [name, type] = useState("");
	const keep = (all: View[]) => {
		set(all);
		try {
			localStorage.setItem(place, JSON.stringify(all));
		} catch {
			// they last as long as the page
		}
	};
	const others = views.filter((v) => v.name !== name.trim());
	const why = line.trim() === "" ? "Type a search first." : name.trim() === "" ? "Give it a name." : others.length >= viewsMax ? `There are ${viewsMax} views: forget one.` : "";
	const save = () => {
		if (why === "") {
			keep([...others, { name: name.trim(), line: line.trim() }].sort((a, b) => a.name.localeCompare(b.name)));
			type("");
		}
	};
	return (
		<details class="views">
			<summary>Views{views.length > 0 && ` (${views.length})`}</summary>
			{views.length > 0 && (
				<ul aria-label="Views">
					{views.map((v) => (
						<li key={v.name}>
							<button type="button" class="small" onClick={() => onOpen(v.line)}>{v.name}</button> <code>{v.line}</code>
							<button type="button" class="small" aria-label={`Forget ${v.name}`} onClick={() => keep(views.filter((o) => o !== v))}>Forget</button>
						</li>
					))}
				</ul>
			)}
			<div class="field">
				<label for={id}>Name of this search</label>
				<span class="named">
					<input id={id} type="text" value={name} maxLength={60} autocomplete="off" spellcheck={false} onInput={(e) => type(e.currentTarget.value)} onKeyDown={(e) => {
						if (e.key === "Enter") {
							e.preventDefault(); // the form around is the search
							save();
						}
					}} />
					<button type="button" class="small" aria-disabled={why !== ""} title={why || undefined} onClick={save}>Keep</button>
				</span>
				<small>This browser keeps it, for all queues.</small>
			</div>
		</details>
	);
}
