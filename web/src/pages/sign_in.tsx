import { useState } from "preact/hooks";
import { type Session, session } from "../api/client.ts";
import { Problem } from "../components/basics.tsx";

export function SignIn(props: { signedIn: (session: Session) => void }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState<Error>();
  const signIn = async () => {
    try {
      props.signedIn(await session.signIn(token));
    } catch (refused) {
      setError(refused instanceof Error ? refused : new Error(String(refused)));
    }
  };
  return (
    <main class="sign-in">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void signIn();
        }}
      >
        <h1>Gristmill</h1>
        <p>This server needs a token. The browser keeps it for 12 hours, out of reach of scripts.</p>
        <label>
          <span>Token</span>
          <input
            type="password"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
            autocomplete="current-password"
            autofocus
            required
          />
        </label>
        <Problem error={error} />
        <button type="submit" class="primary">
          Sign in
        </button>
        <p class="note">
          Create one at the server: <code>gristmill token create --role admin --group me --queue '*'</code>
        </p>
      </form>
    </main>
  );
}
