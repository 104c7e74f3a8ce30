import { defineConfig } from "vite";

// `npm run dev` shows the page with the API of a running server.
const server = process.env["GRISTMILL_SERVER"] ?? "http://127.0.0.1:8378";

export default defineConfig({
  base: "./",
  build: {
    // The server embeds these files by their names: see crates/server/src/dashboard/assets.rs.
    outDir: process.env["OUT"] ?? "../crates/server/dashboard",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    rollupOptions: {
      output: {
        entryFileNames: "app.js",
        assetFileNames: (asset) => (asset.names[0]?.endsWith(".css") ? "app.css" : "[name][extname]"),
        codeSplitting: false,
      },
    },
  },
  experimental: {
    // The server has the page at `/` and its files at `/assets/`.
    renderBuiltUrl: (file) => `/assets/${file}`,
  },
  server: {
    proxy: {
      "/api": { target: server, changeOrigin: true, headers: { origin: server } },
      "/dashboard": { target: server, changeOrigin: true, headers: { origin: server } },
    },
  },
});
