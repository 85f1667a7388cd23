{{/* Values of the KWasm operator's chart: two are applied, the remaining ones are rejected with the equivalent value. */}}

{{/* "true" if every Linux node is provisioned, else "false" */}}
{{- define "trellis.autoProvision" -}}
{{- $theirs := toString .Values.kwasmOperator.autoProvision -}}
{{- ternary $theirs (toString .Values.installers.autoProvision) (has $theirs (list "true" "false")) -}}
{{- end -}}

{{- define "trellis.kwasmCheck" -}}
{{- $v := .Values -}}
{{- $theirs := $v.kwasmOperator -}}
{{- if and $v.installers.autoProvision (eq (toString $theirs.autoProvision) "false") -}}
{{- fail "kwasmOperator.autoProvision: is false, and installers.autoProvision is true: remove one of them" -}}
{{- end -}}
{{- $ours := get ($v.services.provisioner.settings | default dict) "TRELLIS_INSTALLER_IMAGE" | default "" -}}
{{- if and $theirs.installerImage $ours (ne (toString $ours) $theirs.installerImage) -}}
{{- fail (printf "kwasmOperator.installerImage: is %s, and services.provisioner.settings.TRELLIS_INSTALLER_IMAGE is %s: remove one of them" $theirs.installerImage $ours) -}}
{{- end -}}
{{- if contains "kwasm/kwasm-operator" (lower $v.image.repository) -}}
{{- fail (printf "image.repository: %s is the KWasm operator: remove image from the values, or set the image of Trellis" $v.image.repository) -}}
{{- end -}}
{{- $instead := dict
      "replicaCount" "set services.nodeWatcher.replicas and services.provisioner.replicas"
      "imagePullSecrets" "set image.pullSecrets, a list of names"
      "podAnnotations" "set pods.podAnnotations"
      "resources" "set pods.resources, or services.provisioner.resources"
      "nodeSelector" "set pods.nodeSelector"
      "tolerations" "set pods.tolerations"
      "affinity" "set pods.affinity"
      "serviceAccount" "set pods.serviceAccount; each service has its own ServiceAccount"
      "podSecurityContext" "remove it: pods run without privileges"
      "securityContext" "remove it: pods run without privileges"
      "service" "remove it: there is no such Service" -}}
{{- range $name := keys $instead | sortAlpha -}}
{{- if get $v $name -}}
{{- fail (printf "%s: is a value of the KWasm operator's chart; instead: %s" $name (get $instead $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
