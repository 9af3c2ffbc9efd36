import { useState } from "preact/hooks";
import { login } from "../api";
import type { Refusal } from "../api";
import { refusalOf, useTitle } from "../app";

export function Login({ onDone }: { onDone(): void }) {
	const [user, setUser] = useState("");
	const [password, setPassword] = useState("");
	const [error, fail] = useState<Refusal>();
	const [busy, setBusy] = useState(false);
	useTitle("Log in");
	const send = async () => {
		setBusy(true);
		fail(undefined);
		try {
			await login(user, password);
			onDone();
		} catch (e) {
			const refusal = refusalOf(e);
			fail(refusal);
			setBusy(false);
		}
	};
	return (
		<main class="alone">
			<form class="login card" onSubmit={(e) => {
				e.preventDefault();
				void send();
			}}>
				<h1>Fila</h1>
				<div class="field">
					<label for="user">User</label>
					<input id="user" name="user" value={user} placeholder="default" autocomplete="username" autofocus spellcheck={false}
						onInput={(e) => setUser(e.currentTarget.value)} />
				</div>
				<div class="field">
					<label for="password">Password</label>
					<input id="password" name="password" type="password" value={password} autocomplete="current-password" onInput={(e) => setPassword(e.currentTarget.value)} />
				</div>
				{error && <p class="failure" role="alert">{error.code === "WRONGPASS" ? "User or password is wrong." : error.text}</p>}
				<button type="submit" class="primary" disabled={busy}>Log in</button>
			</form>
		</main>
	);
}
