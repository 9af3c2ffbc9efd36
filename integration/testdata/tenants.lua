-- Shares workers among tenants. How much a tenant gets is set at run time:
--   FILA.CONFIG SET weight:acme 5
function on_enqueue(msg)
  local tenant = msg.headers.tenant or "unknown"
  return {
    fairness_key = tenant,
    weight = tonumber(fila.get("weight:" .. tenant, "1")),
    throttle_keys = { "lane:" .. fila.get("lane", "normal") },
  }
end
