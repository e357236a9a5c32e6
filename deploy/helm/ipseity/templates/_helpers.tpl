{{/* Labels by which services and policies select all pods of the release. */}}
{{- define "ipseity.selector" -}}
app.kubernetes.io/name: ipseity
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "ipseity.labels" -}}
{{ include "ipseity.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ipseity.image" -}}
{{ required "Set image.repository to the image, such as registry.example.com/ipseity." .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "ipseity.secret" -}}
{{ required "Set existingSecret to the name of a secret with the keys store-url and ledger-url." .Values.existingSecret }}
{{- end }}

{{/* The settings that must match the other objects, by their name. Environment variables, because a TOML file cannot have a
section twice. */}}
{{- define "ipseity.fixedSettings" -}}
public.base_url: {{ required "Set baseUrl to the public URL, such as https://ip.example.com." .Values.baseUrl | quote }}
edge.http: ""
edge.https: "[::]:8443"
# Clients use the port of the service, not of the pod.
edge.http3_advertised_port: "443"
edge.certificate_file: /etc/ipseity/tls/tls.crt
edge.private_key_file: /etc/ipseity/tls/tls.key
# The cluster needs a few seconds to stop sending connections to a stopping pod.
edge.drain_delay_ms: "10000"
edge.drain_timeout_ms: "20000"
store.url_file: /etc/ipseity/secrets/store-url
ledger.url_file: /etc/ipseity/secrets/ledger-url
# On all addresses of the pod, because probes and Prometheus connect from outside of it.
ops.listen: "[::]:9464"
{{- end }}

{{/* The value `settings`, after a check that it has none of the fixed settings: they would be ignored. */}}
{{- define "ipseity.settings" -}}
{{- $settings := fromToml .Values.settings }}
{{- if hasKey $settings "Error" }}
{{- fail (printf "The value settings is not valid TOML: %s" $settings.Error) }}
{{- end }}
{{- /* The files of the secret have the URLs. */}}
{{- range $setting := concat (keys (include "ipseity.fixedSettings" . | fromYaml)) (list "store.url" "ledger.url") }}
{{- $name := splitList "." $setting }}
{{- if hasKey (get $settings (first $name) | default dict) (last $name) }}
{{- fail (printf "Remove [%s] %s from the value settings: the chart sets it." (first $name) (last $name)) }}
{{- end }}
{{- end }}
{{- .Values.settings }}
{{- end }}

{{/* What the pods of the service and of the migration have in common. */}}
{{- define "ipseity.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  # The secrets are readable for this group.
  fsGroup: 65532
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ipseity.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: ["ALL"] }
{{- end }}
