{{/* Names and labels. Parameter service: a key of `services`; component: the same name with dashes. */}}

{{/* component of a service: nodeWatcher -> node-watcher */}}
{{- define "trellis.component" -}}
{{- . | kebabcase -}}
{{- end -}}

{{/* prefix of the names of objects, without the release name: commands and messages name the objects */}}
{{- define "trellis.fullname" -}}
{{- .Values.fullnameOverride | default "trellis" -}}
{{- end -}}

{{/* labels that select the pods of all components */}}
{{- define "trellis.selectorOfAll" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name | quote }}
{{- end -}}

{{/* Labels that select the pods of a component. A Deployment's selector is immutable, so it has no further label.
     In: root, component */}}
{{- define "trellis.selector" -}}
{{ include "trellis.selectorOfAll" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of a component's pods. They contain no version: another version of the chart alone restarts no pod.
     In: root, component */}}
{{- define "trellis.podLabels" -}}
{{ include "trellis.selector" . }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/part-of: trellis
{{- end -}}

{{/* labels of an object of a component. In: root, component */}}
{{- define "trellis.labels" -}}
{{ include "trellis.podLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* release that manages an object in the cluster, as <namespace>/<name> */}}
{{- define "trellis.releaseOf" -}}
{{- $found := dig "metadata" "annotations" dict . -}}
{{- get $found "meta.helm.sh/release-namespace" }}/{{ get $found "meta.helm.sh/release-name" -}}
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

{{/* a role and its binding. In: kind (Role or ClusterRole), name, namespace, labels (a map), rules, subject, annotations */}}
{{- define "trellis.role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- toYaml .labels | nindent 4 }}
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
  labels: {{- toYaml .labels | nindent 4 }}
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

{{/* component of the Deployment that runs a component; the console has its own in both modes. In: root, component */}}
{{- define "trellis.runner" -}}
{{ ternary "bundle" .component (and (eq .root.Values.mode "bundle") (ne .component "console")) }}
{{- end -}}

{{/* ServiceAccount of a component, as the subject of a binding. Its name is fixed: `trellis secrets roles` and
     `trellis controllers roles` print bindings to it. In: root, component */}}
{{- define "trellis.subject" -}}
{{- $name := printf "trellis-%s" (include "trellis.runner" .) -}}
{{- dict "kind" "ServiceAccount" "name" $name "namespace" .root.Release.Namespace | toYaml -}}
{{- end -}}
