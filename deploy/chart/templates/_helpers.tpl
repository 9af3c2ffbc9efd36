{{- define "fila.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- $name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "fila.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fila.labels" -}}
{{ include "fila.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "fila.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The secret that has the password. */}}
{{- define "fila.secret" -}}
{{ .Values.auth.existingSecret | default (include "fila.name" .) }}
{{- end }}

{{/* What the containers of a pod may do: nothing that a server of sockets and files does not need. */}}
{{- define "fila.confined" -}}
{ readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: { drop: [ALL] } }
{{- end }}

{{- define "fila.user" -}}
{ runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: { type: RuntimeDefault } }
{{- end }}

{{/* Values that do not go together. */}}
{{- define "fila.check" -}}
{{- if and (not .Values.auth.existingSecret) (not .Values.auth.password) }}
{{- fail "auth: name a secret with the key \"password\" in auth.existingSecret, or give auth.password" }}
{{- end }}
{{- if and (gt (int .Values.nodes) 1) (not .Values.cluster.secret) (not .Values.networkPolicy.enabled) }}
{{- fail "cluster: all that reaches the port between nodes can read and change everything: name certificates in cluster.secret, or leave networkPolicy.enabled" }}
{{- end }}
{{- range $setting, $value := .Values.settings }}
{{- if has $setting (list "server.listen_addr" "storage.path" "auth.password" "admin.listen_addr" "admin.tls" "admin.prefix" "tls.listen_addr" "tls.cert_file" "tls.key_file" "cluster.node_id" "cluster.peers" "cluster.advertise_host" "cluster.cert_file" "cluster.key_file" "cluster.ca_file" "cluster.trust_network") }}
{{- fail (printf "settings: %s is what the chart itself sets, and its services and probes rely on: leave it out" $setting) }}
{{- end }}
{{- end }}
{{- if and .Values.sqs.enabled (not .Values.sqs.keysSecret) }}
{{- fail "sqs.keysSecret: name a secret with the key \"keys.json\", the access keys of the gateway" }}
{{- end }}
{{- end }}

{{/* A setting as text. Numbers of YAML are floating-point numbers here, and whole ones have no exponent. */}}
{{- define "fila.setting" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}
