// What has changed between two texts, line by line.

const cellsMax = 4_000_000; // of the table of two texts

/** Line is a line of a comparison: in both texts, or in one of them. */
export interface Line {
	side: " " | "-" | "+";
	text: string;
}

/** diff returns the lines of two texts with the fewest changes; undefined if they are too long. */
export function diff(before: string, after: string): Line[] | undefined {
	const a = before.split("\n");
	const b = after.split("\n");
	if (a.length * b.length > cellsMax) {
		return undefined;
	}
	// common[i][j] is how many lines the ends of both have in common, from line i and j.
	const common = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
	for (let i = a.length - 1; i >= 0; i--) {
		for (let j = b.length - 1; j >= 0; j--) {
			common[i]![j] = a[i] === b[j] ? common[i + 1]![j + 1]! + 1 : Math.max(common[i + 1]![j]!, common[i]![j + 1]!);
		}
	}
	const lines: Line[] = [];
	let i = 0;
	let j = 0;
	while (i < a.length || j < b.length) {
		if (i < a.length && j < b.length && a[i] === b[j]) {
			lines.push({ side: " ", text: a[i]! });
			i++;
			j++;
		} else if (j >= b.length || (i < a.length && common[i + 1]![j]! >= common[i]![j + 1]!)) {
			lines.push({ side: "-", text: a[i++]! });
		} else {
			lines.push({ side: "+", text: b[j++]! });
		}
	}
	return lines;
}

/** Diff shows what has changed from one text to another. */
export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
	const lines = diff(before, after);
	if (!lines) {
		return <p class="caption">The sources are too long to compare.</p>;
	}
	if (lines.every((l) => l.side === " ")) {
		return <p class="caption">The sources are the same.</p>;
	}
	return <pre class="payload diff" tabIndex={0} aria-label={label}>{lines.map((l, i) => <span key={i} class={l.side === "+" ? "added" : l.side === "-" ? "taken" : ""}>{l.side} {l.text}{"\n"}</span>)}</pre>;
}
