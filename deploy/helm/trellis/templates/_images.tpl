{{/* Names of images. An image is a map: registry, repository, tag, digest. */}}

{{/* full name of an image. In: root, image, tag (if the image has none) */}}
{{- define "trellis.imageName" -}}
{{- $name := .image.repository -}}
{{- with .root.Values.global.imageRegistry | default .image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .image.digest }}{{ $name }}@{{ .image.digest }}{{ else }}{{ $name }}:{{ .image.tag | default .tag }}{{ end -}}
{{- end -}}

{{/* image of the services */}}
{{- define "trellis.image" -}}
{{- include "trellis.imageName" (dict "root" . "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{/* image of the installer Jobs */}}
{{- define "trellis.installerImage" -}}
{{- include "trellis.imageName" (dict "root" . "image" .Values.installers.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{/* names of image pull Secrets with those of `global`, as a list. In: root, names */}}
{{- define "trellis.pullSecretNames" -}}
{{- $names := .names | default list -}}
{{- range .root.Values.global.imagePullSecrets -}}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- toYaml (uniq $names) -}}
{{- end -}}

{{/* imagePullSecrets of a pod; empty if there are none */}}
{{- define "trellis.pullSecrets" -}}
{{- with include "trellis.pullSecretNames" (dict "root" . "names" .Values.image.pullSecrets) | fromYamlArray -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Fail if a repository has the registry of a former value, which another registry would be prepended to. */}}
{{- define "trellis.imageCheck" -}}
{{- $v := .Values -}}
{{- $images := dict "image" $v.image "installers.image" $v.installers.image "nats.image" $v.nats.image "jaeger.image" $v.jaeger.image "collector.image" $v.collector.image "latticeNats.image" $v.latticeNats.image "wadm.image" $v.wadm.image -}}
{{- range $value, $image := $images -}}
{{- $first := splitList "/" $image.repository | first -}}
{{- $names := and (contains "/" $image.repository) (or (regexMatch "[.:]" $first) (eq $first "localhost")) -}}
{{- if and $names (or $image.registry $v.global.imageRegistry) -}}
{{- fail (printf "%s.repository: %s begins with a registry: set %s.registry=%s, and the repository without it" $value $image.repository $value $first) -}}
{{- end -}}
{{- end -}}
{{- end -}}
