{{/* Names and labels. Parameter service: a key of `services`; component: the same name with dashes. */}}

{{/* component of a service: nodeWatcher -> node-watcher */}}
{{- define "trellis.component" -}}
{{- . | kebabcase -}}
{{- end -}}

{{/* labels of an object of a component */}}
{{- define "trellis.labels" -}}
app.kubernetes.io/name: trellis
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{/* name of a Role for an account, equal to that of trellis.names. In: prefix, account */}}
{{- define "trellis.roleName" -}}
{{- $plain := printf "%s%s" .prefix .account -}}
{{- if and (le (len $plain) 253) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .account) -}}
{{- $plain -}}
{{- else -}}
{{- $part := regexReplaceAll "[^a-z0-9-]" (lower .account) "-" | trunc 52 | trimAll "-" | default "user" -}}
{{- printf "%s%s-%s" .prefix $part (sha256sum .account | trunc 10) -}}
{{- end -}}
{{- end -}}

{{/* a role and its binding. In: kind (Role or ClusterRole), name, namespace, component, rules, subject, annotations */}}
{{- define "trellis.role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "trellis.labels" .component | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
rules: {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "trellis.labels" .component | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name | quote }}
subjects:
  - {{ toJson .subject }}
{{- end }}

{{/* name of a component's Deployment and ServiceAccount; the console has its own in both modes. In: root, component */}}
{{- define "trellis.runner" -}}
trellis-{{ ternary "bundle" .component (and (eq .root.Values.mode "bundle") (ne .component "console")) }}
{{- end -}}

{{/* ServiceAccount of a component, as the subject of a binding. In: root, component */}}
{{- define "trellis.subject" -}}
{{- dict "kind" "ServiceAccount" "name" (include "trellis.runner" .) "namespace" .root.Release.Namespace | toYaml -}}
{{- end -}}
